// Package clusterrole keeps the roles that every cluster has, and fills those in that
// are made of others.
//
// Reads: ClusterRoles, ClusterRoleBindings.
//
// Alone writes: the creation of the built-in ClusterRoles and ClusterRoleBindings, and
// what they lack of their rules, subjects, labels and annotations; the rules of a
// ClusterRole that has an aggregationRule.
//
// Invariants: nothing that somebody added to a built-in role or binding is taken away;
// one that git declares, or that has the annotation
// rbac.authorization.kubernetes.io/autoupdate: "false", is left as it is; nothing is
// deleted.
//
// Example: a commit declares a ClusterRole "cron-view" with the label
// rbac.authorization.k8s.io/aggregate-to-view. The rules of "view" become those of
// system:aggregate-to-view and of cron-view; that wakes the controller again, and the
// rules of "edit" and then of "admin", which are made of "view", follow.
package clusterrole
