// Package splice changes values of a YAML or JSON file and leaves every other
// byte as it is: lines, comments, order, quotes, indentation, line ends, a byte
// order mark.
//
// A parser only locates the values; the bytes between are copied. The parser is
// yaml.v3, the one that kyaml wraps, because it gives places; what a text means is
// asked of api, which reads as Kubernetes does.
//
// # How a value is written
//
// A scalar keeps its quotes or block style where that can hold the new value, and
// is put in double quotes where it cannot. In a flow map or list, and in JSON, the
// new value is in flow style. A new key stands after its last sibling and as that
// is indented; a removed key or item takes the comment lines right above it along.
// What comes by an alias or a merge key is written out at the place that uses it:
// the anchor and its other users keep their value.
//
// # What is checked
//
// The result of each edited document is read again and must be exactly the edited
// value; if it cannot be made so, File returns an error and no bytes. Errors quote
// nothing of the file.
//
// # Example
//
//	path := fieldpath.MakePathOrDie("spec", "replicas")
//	out, err := splice.File(data, []splice.Edit{{Path: path, Value: int64(5)}})
package splice
