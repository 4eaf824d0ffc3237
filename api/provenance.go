package api

import "strconv"

// Annotations and labels of ours.
const (
	AnnotationSource = "headway.dev/source" // name of the source that declares the object
	AnnotationCommit = "headway.dev/commit" // commit that last changed it
	AnnotationPath   = "headway.dev/path"   // file in the source's tree
	AnnotationLine   = "headway.dev/line"   // line of the document in that file, from 1
	AnnotationAuthor = "headway.dev/author" // author of that commit: "Name <mail>"
	AnnotationHash   = "headway.dev/hash"   // ManifestHash of the manifest
)

// Provenance says where a declared object's present form came from.
type Provenance struct {
	Source, Commit, Path, Author, Hash string
	Line                               int
}

// ProvenanceOf reads the provenance of obj; ok is false for an object that no
// source declares.
func ProvenanceOf(obj Object) (p Provenance, ok bool) {
	a := obj.GetAnnotations()
	if a[AnnotationSource] == "" {
		return Provenance{}, false
	}
	line, err := strconv.Atoi(a[AnnotationLine])
	if err != nil {
		line = 0
	}
	return Provenance{Source: a[AnnotationSource], Commit: a[AnnotationCommit], Path: a[AnnotationPath], Author: a[AnnotationAuthor], Hash: a[AnnotationHash], Line: line}, true
}

// SetProvenance writes p on obj.
func SetProvenance(obj Object, p Provenance) {
	a := map[string]string{}
	for k, v := range obj.GetAnnotations() {
		a[k] = v
	}
	a[AnnotationSource], a[AnnotationCommit], a[AnnotationPath] = p.Source, p.Commit, p.Path
	a[AnnotationAuthor], a[AnnotationHash], a[AnnotationLine] = p.Author, p.Hash, strconv.Itoa(p.Line)
	obj.SetAnnotations(a)
}
