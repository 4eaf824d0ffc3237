package syncer

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
)

// checkAddresses finds the Services that name a cluster IP or a node port which they
// cannot have: outside of the cluster's ranges, or another's, declared or live. Only
// those that change are judged, by how all Services will be; what the store chooses
// itself it chooses among what is free then.
func checkAddresses(c *scene, services admission.Services, f *findings) {
	var changed []*api.Manifest
	for _, m := range c.changed {
		if _, ok := m.Object.(*corev1.Service); ok {
			changed = append(changed, m)
		}
	}
	if len(changed) == 0 {
		return
	}
	slices.SortFunc(changed, func(a, b *api.Manifest) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line)) })
	after := c.servicesAfter()
	checkBalancers(c, changed, after, f)
	checkExternals(c, changed, after, f)
	holders := map[api.Claim]store.Key{}
	hold := func(key store.Key, claims []api.Claim) {
		for _, claim := range claims {
			if _, held := holders[claim]; !held {
				holders[claim] = key
			}
		}
	}
	judged := map[store.Key]bool{}
	for _, m := range changed {
		judged[keyOf(m)] = true
	}
	// What does not change comes first, then what one has and keeps: it is the newcomer
	// that cannot have it.
	for _, key := range slices.SortedFunc(maps.Keys(after), compareKeys) {
		claims := api.Claims(after[key])
		if judged[key] {
			had := c.claimsNow(key)
			claims = slices.DeleteFunc(claims, func(claim api.Claim) bool { return !slices.Contains(had, claim) })
		}
		hold(key, claims)
	}
	for _, m := range changed {
		key := keyOf(m)
		svc := after[key]
		if svc == nil {
			continue // it cannot be planned, which is said elsewhere
		}
		live, _ := c.live.Get(key).(*corev1.Service)
		errs := services.Refuse(svc, live, func(claim api.Claim) string {
			if by, held := holders[claim]; held && by != key {
				return c.nameOf(by)
			}
			return ""
		})
		for _, p := range m.Problems(errs) {
			f.add(ruleAddress, p)
		}
		hold(key, api.Claims(svc))
	}
	checkRoom(c, services, changed, after, holders, f)
}

// checkRoom finds the Services for which no address or port is left: applied, they
// would wait until somebody deletes others. holders is who has what is named.
func checkRoom(c *scene, services admission.Services, changed []*api.Manifest, after map[store.Key]*corev1.Service, holders map[api.Claim]store.Key, f *findings) {
	if len(f.problems) > 0 {
		return // what cannot be had is said already
	}
	for _, m := range changed {
		key := keyOf(m)
		if after[key] == nil {
			continue
		}
		svc := after[key].DeepCopy()
		live, _ := c.live.Get(key).(*corev1.Service)
		err := services.Allocate(svc, live, func(claim api.Claim) string {
			if by, held := holders[claim]; held && by != key {
				return titleOf(by)
			}
			return ""
		})
		if err != nil {
			at := "spec.ports"
			if svc.Spec.ClusterIP == "" {
				at = "spec"
			}
			f.add(ruleAddress, problem(m, at, strings.TrimPrefix(err.Error(), "Internal error occurred: ")))
			return
		}
		for _, claim := range api.Claims(svc) {
			holders[claim] = key
		}
	}
}

// servicesAfter are the Services that there will be when the steps are done.
func (c *scene) servicesAfter() map[store.Key]*corev1.Service {
	out := map[store.Key]*corev1.Service{}
	for _, obj := range c.live.List(api.Services(), "") {
		out[store.KeyOf(obj)] = obj.(*corev1.Service)
	}
	for _, step := range c.steps {
		if step.Key.GroupResource != api.Services() {
			continue
		}
		svc, ok := step.Op.Object.(*corev1.Service)
		switch {
		case step.Verb == Delete:
			delete(out, step.Key)
		case ok && (step.Verb == Create || step.Verb == Update):
			svc = svc.DeepCopy()
			live := out[step.Key]
			if step.Verb == Create {
				live = nil
			}
			if errs := api.PrepareService(svc, live); len(errs) == 0 { // else the validation has said so
				out[step.Key] = svc
			}
		}
	}
	return out
}

// claimsNow is what a live Service has.
func (c *scene) claimsNow(key store.Key) []api.Claim {
	if svc, ok := c.live.Get(key).(*corev1.Service); ok {
		return api.Claims(svc)
	}
	return nil
}

// nameOf says which object it is and where it is declared.
func (c *scene) nameOf(key store.Key) string {
	name := titleOf(key)
	if m := c.desired.manifest(key); m != nil {
		return name + ", declared in " + place(m) + ","
	}
	return name
}

// together is the steps in groups, in their order. A Service that takes a cluster IP
// or a node port which another lets go is in one group with it, deletions first, so
// that they go into one transaction: neither has to wait for the other, and two may
// change places. All other groups are of one step.
func together(steps []Step) [][]Step {
	gives := map[api.Claim][]int{}
	for i, step := range steps {
		if step.Key.GroupResource == api.Services() {
			for _, claim := range movedClaims(step.Live, afterStep(step)) {
				gives[claim] = append(gives[claim], i)
			}
		}
	}
	group := make([]int, len(steps)) // by step: the first step of its group
	for i := range group {
		group[i] = i
	}
	for i, step := range steps {
		if len(gives) == 0 || step.Key.GroupResource != api.Services() {
			continue
		}
		for _, claim := range movedClaims(afterStep(step), step.Live) {
			for _, giver := range gives[claim] {
				from, to := max(group[i], group[giver]), min(group[i], group[giver])
				for j := range group {
					if group[j] == from {
						group[j] = to
					}
				}
			}
		}
	}
	members := map[int][]Step{}
	for i, step := range steps {
		members[group[i]] = append(members[group[i]], step)
	}
	var out [][]Step
	for i := range steps {
		if g := members[i]; g != nil {
			slices.SortStableFunc(g, func(a, b Step) int { return cmp.Compare(earlier(a.Verb), earlier(b.Verb)) })
			out = append(out, g)
		}
	}
	return out
}

func earlier(v Verb) int {
	if v == Delete {
		return 0
	}
	return 1
}

// afterStep is the Service that a step leaves; nil when it leaves none.
func afterStep(step Step) api.Object {
	if step.Verb != Create && step.Verb != Update {
		return nil
	}
	return step.Op.Object
}

// movedClaims are those that one Service has and the other has not. Either may be nil.
func movedClaims(has, hasNot api.Object) []api.Claim {
	svc, ok := has.(*corev1.Service)
	if !ok {
		return nil
	}
	other, ok := hasNot.(*corev1.Service)
	if !ok {
		other = &corev1.Service{}
	}
	had := api.Claims(other)
	return slices.DeleteFunc(api.Claims(svc), func(c api.Claim) bool { return slices.Contains(had, c) })
}
