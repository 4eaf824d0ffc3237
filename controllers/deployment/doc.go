// Package deployment runs Deployments: it makes a ReplicaSet for each version of a
// template, and moves pods from the old sets to the new one.
//
// One transaction does one step, whole: the ReplicaSets as they shall be, the pods
// created and deleted to make them so, the Deployment's status, and the Events
// that tell of it. So a commit becomes pods in one transaction, and every rule of
// a rolling update is decided and done on one state (R6): the transaction is
// conditioned on the Deployment, on its ReplicaSets, and on as many available pods
// as must stay. Whoever else creates pods of a set writes the set as well.
//
// Reads: Deployments, ReplicaSets, Pods, Namespaces; of ConfigMaps and Secrets only
// the provenance.
//
// Alone writes: a Deployment's status and its annotation
// deployment.kubernetes.io/revision; of the ReplicaSets that a Deployment controls
// everything, status included; the creation, deletion mark and controller
// reference of their pods; Events of deployment-controller and, about those sets,
// of replicaset-controller.
//
// Invariants (R6), in the state that a step is conditioned on: it deletes no
// available pod unless more than desired − maxUnavailable are available, and creates
// none unless fewer than desired + maxSurge are not terminating. Beyond
// maxWitnesses pods, what is available is what the sets' status says, since no
// transaction holds that many conditions; the sets are among the conditions.
//
// Content that a template refers to (D13): a set records the manifest hash of each
// declared ConfigMap and Secret that its template names. A set serves the
// Deployment when its template is equal and no recorded hash differs from the
// present one. What is not recorded is filled in and rolls nothing, so neither an
// upgrade of Headway nor a hand edit starts a rollout.
//
// Example: replicas 10, maxSurge 25 %, maxUnavailable 25 %, a new template, all
// old pods available. The first step deletes 2 old pods (8 stay available) and
// creates the new set with 5 (13 in all); each pod that becomes available lets the
// next step go on.
package deployment
