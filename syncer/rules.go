package syncer

import "headway.dev/headway/api"

// Severity is what a finding does to a commit.
type Severity string

const (
	Error   Severity = "error"   // the commit is refused
	Warning Severity = "warning" // it is said, and the commit is applied
)

// Rule is one thing that is judged beyond a single manifest. The principle: an
// error when what the commit declares cannot work whatever the cluster does, or
// destroys more than its author may have meant; a warning when time, a person or
// the cluster can still make it right.
type Rule struct {
	Name     string
	Severity Severity
	Why      string
}

// The names of the rules.
const (
	ruleDeclaredTwice     = "declared-twice"
	ruleDeclaredElsewhere = "declared-elsewhere"
	ruleOutside           = "outside-its-namespaces"
	ruleNamespace         = "namespace-missing"
	ruleConfigMap         = "configmap-missing"
	ruleSecret            = "secret-missing"
	ruleClaim             = "claim-missing"
	ruleKey               = "key-missing"
	ruleInUse             = "removed-in-use"
	ruleNewGround         = "missing-on-new-ground"
	ruleAccount           = "serviceaccount-missing"
	rulePullSecret        = "pull-secret-missing"
	rulePriorityClass     = "priorityclass-missing"
	ruleSecurity          = "pod-security"
	ruleSecurityWarned    = "pod-security-warned"
	ruleSelectsNothing    = "service-selects-nothing"
	ruleAddress           = "address-not-free"
	ruleBalancer          = "balancer-port-taken"
	ruleHidden            = "port-of-a-node-hidden"
	ruleExternalName      = "external-name-leads-nowhere"
	ruleDriver            = "no-volume-driver"
	ruleNoClass           = "no-storage-class"
	ruleOneNode           = "volume-on-one-node"
	ruleReserved          = "made-by-the-cluster"
	ruleAutoscaled        = "replicas-autoscaled"
	ruleImmutable         = "immutable-field"
	ruleDeletion          = "too-many-deletions"
	rulePreciousDeletion  = "precious-deletion"
	ruleManifestLost      = "manifest-lost"
	ruleMarker            = "secret-value-lost"
	ruleTrailer           = "trailer-not-understood"
	ruleLimits            = "beyond-limits"
	ruleLimitsLive        = "beyond-live-limits"
	ruleQuota             = "beyond-quota"
	ruleCapacityNow       = "no-room-now"
	ruleCapacityNever     = "no-room-ever"
	ruleCapacityUnchecked = "room-not-checked"
)

// Rules is the table of docs/judging.md.
func Rules() []Rule {
	return []Rule{
		{ruleDeclaredTwice, Error, "which of the two is meant cannot be known"},
		{ruleDeclaredElsewhere, Error, "two sources would write it against each other"},
		{ruleOutside, Error, "a further source has the namespaces that the main one gives it, and no others"},
		{ruleNamespace, Error, "nothing can be made in a namespace that is not there, and nobody declares it"},
		{ruleConfigMap, Error, "the containers that read it cannot start"},
		{ruleSecret, Error, "the containers that read it cannot start"},
		{ruleClaim, Error, "the pods that mount it cannot start"},
		{ruleKey, Error, "the containers that read the key cannot start"},
		{ruleInUse, Error, "what still refers to the removed object cannot start again"},
		{ruleNewGround, Warning, "in a namespace that is new, or before the first commit is applied, nobody can have made by hand what does not stand in git"},
		{ruleAccount, Warning, "pods run without it: they get no API credentials in this version"},
		{rulePullSecret, Warning, "the image may be there already, or be public"},
		{rulePriorityClass, Error, "pods that name a class that is not there are not made"},
		{ruleSecurity, Error, "pods that break the Pod Security level that their namespace enforces are not made"},
		{ruleSecurityWarned, Warning, "the namespace's label asks for a warning"},
		{ruleSelectsNothing, Warning, "a Service may come before its pods"},
		{ruleAddress, Error, "a cluster IP and a node port are one Service's, and of the cluster's ranges"},
		{ruleBalancer, Error, "the nodes are the load balancer, and each of their ports is one Service's"},
		{ruleHidden, Warning, "that somebody listens there is not known for certain, nor that he is needed"},
		{ruleExternalName, Warning, "Kubernetes accepts it, and a resolver may know such a name"},
		{ruleDriver, Warning, "a PersistentVolume of the class may be made by hand"},
		{ruleNoClass, Warning, "a PersistentVolume of the class may be made by hand"},
		{ruleOneNode, Warning, "one node may be enough for all pods of the claim"},
		{ruleReserved, Error, "the Service default/kubernetes leads to the API and each namespace's ConfigMap kube-root-ca.crt holds its authority; controllers keep both so"},
		{ruleAutoscaled, Warning, "an autoscaler sets the replicas, and what is declared besides only misleads who reads it"},
		{ruleImmutable, Error, "Kubernetes forbids the change in place, and deleting is not done unasked"},
		{ruleDeletion, Error, "a wrong path, a bad merge or a broken generator looks like this"},
		{rulePreciousDeletion, Error, "a Namespace takes everything in it along, a PersistentVolumeClaim its data, and a StatefulSet with whenDeleted: Delete its claims"},
		{ruleManifestLost, Error, "a file that was broken by mistake looks like this"},
		{ruleMarker, Error, "the live ref shows only that a value differs; taken over from there, its mark would replace the real one"},
		{ruleTrailer, Warning, "a trailer that names nothing allows nothing"},
		{ruleLimits, Error, "every pod of the template would be refused by a LimitRange of the same commit"},
		{ruleLimitsLive, Warning, "a LimitRange that the commit does not declare can change without one"},
		{ruleQuota, Warning, "a quota can be raised, and a workload that does not fit makes the pods that do"},
		{ruleCapacityNow, Warning, "a cluster may grow, and pods may leave"},
		{ruleCapacityNever, Warning, "only another kind of node can run it, and one may be on its way"},
		{ruleCapacityUnchecked, Warning, "judging never takes long"},
	}
}

// findings collects what the rules find.
type findings struct{ problems, warnings []api.Problem }

// add files p under the severity of its rule.
func (f *findings) add(rule string, p api.Problem) {
	if severity(rule) == Warning {
		f.warnings = append(f.warnings, p)
		return
	}
	f.problems = append(f.problems, p)
}

// severity is Error for a name that the table does not have.
func severity(rule string) Severity {
	for _, r := range Rules() {
		if r.Name == rule {
			return r.Severity
		}
	}
	return Error
}
