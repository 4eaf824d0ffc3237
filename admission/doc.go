// Package admission says what may enter the cluster. Admit is a pure function of
// a request and of the facts that its caller looked up: it returns the object to
// write, completed where Kubernetes' own admission completes it, or the error to
// give to the client, which is a Kubernetes API error with the right code.
//
// The API server calls it for every request, the syncer for every declared
// object, and every controller before it writes a pod. So a pod gets the same
// treatment whoever makes it:
//
//	pod, err := admission.Admit(admission.Request{Verb: admission.Create, Object: pod}, admission.Facts{Namespace: ns})
package admission
