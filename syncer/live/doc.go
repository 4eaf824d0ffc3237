// Package live finds drift, and makes the content of the live ref: the tree of the
// applied commit with the declared fields' live values. It has pure functions
// only: no git, no store, no clock. Who made a change, when it is committed and how
// often is the syncer's.
//
// # Drift
//
// Compare finds the declared fields (D6) of a manifest that are not so live, as
// Kubernetes decodes and defaults both: what it finds is what the syncer's merge
// would heal. List items are known by their merge keys; a list whose items stand
// in another order differs as a whole. Drift.Text and its JSON tell it to people
// and programs.
//
// # The tree
//
// Tree changes as few bytes as it can, so that `git diff` shows the drift and
// nothing else. A plain file is spliced (see package splice); a deleted object's
// document or list item goes, and with the last one the file. For objects that a
// kustomization made it adds headway-live.yaml to the folder of the kustomization
// that is the entry point, and lists it there:
//
//   - in patches, as strategic merge patches, where that gives what is live;
//   - else in transformers, as JSON patches. A kustomization's patches come before
//     its images, replicas, labels, prefix and hashes, which would undo them; its
//     transformers come after. A generated ConfigMap or Secret that drifted keeps
//     the name with the hash of its declared content, under which it lives.
//
// Whichever it is, the kustomization is built with it and compared before it is
// given out: what cannot be made exact is a problem, never a wrong tree. Once
// someone has taken a live ref over, its headway-live.yaml belongs to the applied
// commit, and the next is headway-live-2.yaml.
//
// # Secrets (R14)
//
// Of a Secret's values (data, stringData, annotations) only that they differ is
// said and written: a Field has neither value, and the tree has Differs in their
// place, in base64 in data, so that the file still decodes. A comment behind it
// says so, where YAML leaves room for one.
//
// # Example
//
//	d, err := live.Compare(manifest, object) // nil: as declared
//	changed, problems, err := live.Tree(files, drifts)
package live
