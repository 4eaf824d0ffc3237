// Package render turns a tree of files at a commit into manifests. It knows
// which files are manifests, and it is incremental by content (D7): what a file
// or a kustomization gave is kept in a Cache with the hashes of all that it was
// read from, so that a commit costs only what it changed.
//
// # What is a manifest
//
// A file whose name ends in .yaml, .yml or .json, when no part of its path in the
// source starts with a dot, no ignore pattern leaves it out, and a document in it
// has an apiVersion or a kind. Every other YAML or JSON file is skipped and named
// in Result.Skipped. What this version cannot render (a Helm chart or a template,
// an encrypted file, a submodule, a link that leaves the tree) is a problem, never
// skipped: the cluster must not run half of what a repository means.
//
// A symbolic link is followed inside the tree, to a file or a folder; a file that
// is reached twice is read once, under its own path.
//
// # Kustomizations
//
// A folder with a kustomization is one unit, and so is what lies below it: a file
// there is a manifest only if the kustomization says so. Those that no other
// kustomization of the source uses, and that are no components, are built; what
// they use may stand anywhere in the tree. A unit goes this way:
//
//	gather  walks all that it uses, strictly: unknown fields, keys that stand
//	        twice, paths that lead out of the tree or onto a network, programs,
//	        bounds. Nothing of that reaches kustomize.
//	build   kustomize, with the tree as its filesystem; its errors in our words
//	trace   for each object the document it comes from, for each field the patch,
//	        document or line of a kustomization that gives it its value
//
// A unit remembers every path that it asked for, also where nothing was. kustomize
// reads YAML its own way (yes is a text); its way is kept, so that the objects are
// those of `kustomize build`.
//
//	result, problems, err := render.Render(tree, render.Options{Path: "deploy", DefaultNamespace: "default", Cache: cache})
//
// An error means that the tree could not be read and says nothing about the
// commit; problems mean that the commit must be refused (R2).
package render
