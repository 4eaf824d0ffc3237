package server

import (
	"fmt"
	"maps"
	"slices"

	"headway.dev/headway/api"
	"headway.dev/headway/server/accounts"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericserver "k8s.io/apiserver/pkg/server"
	kubeletclient "k8s.io/kubernetes/pkg/kubelet/client"
	controllerrevisionstorage "k8s.io/kubernetes/pkg/registry/apps/controllerrevision/storage"
	daemonsetstorage "k8s.io/kubernetes/pkg/registry/apps/daemonset/storage"
	deploymentstorage "k8s.io/kubernetes/pkg/registry/apps/deployment/storage"
	replicasetstorage "k8s.io/kubernetes/pkg/registry/apps/replicaset/storage"
	statefulsetstorage "k8s.io/kubernetes/pkg/registry/apps/statefulset/storage"
	"k8s.io/kubernetes/pkg/registry/authorization/localsubjectaccessreview"
	"k8s.io/kubernetes/pkg/registry/authorization/selfsubjectaccessreview"
	"k8s.io/kubernetes/pkg/registry/authorization/selfsubjectrulesreview"
	"k8s.io/kubernetes/pkg/registry/authorization/subjectaccessreview"
	cronjobstorage "k8s.io/kubernetes/pkg/registry/batch/cronjob/storage"
	jobstorage "k8s.io/kubernetes/pkg/registry/batch/job/storage"
	leasestorage "k8s.io/kubernetes/pkg/registry/coordination/lease/storage"
	configmapstorage "k8s.io/kubernetes/pkg/registry/core/configmap/storage"
	endpointsstorage "k8s.io/kubernetes/pkg/registry/core/endpoint/storage"
	eventstorage "k8s.io/kubernetes/pkg/registry/core/event/storage"
	namespacestorage "k8s.io/kubernetes/pkg/registry/core/namespace/storage"
	nodestorage "k8s.io/kubernetes/pkg/registry/core/node/storage"
	volumestorage "k8s.io/kubernetes/pkg/registry/core/persistentvolume/storage"
	claimstorage "k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim/storage"
	podstorage "k8s.io/kubernetes/pkg/registry/core/pod/storage"
	replicationcontrollerstorage "k8s.io/kubernetes/pkg/registry/core/replicationcontroller/storage"
	secretstorage "k8s.io/kubernetes/pkg/registry/core/secret/storage"
	endpointslicestorage "k8s.io/kubernetes/pkg/registry/discovery/endpointslice/storage"
	storageclassstorage "k8s.io/kubernetes/pkg/registry/storage/storageclass/storage"
)

// eventLife is how long Events that clients write are kept, in seconds.
const eventLife = 3600

// resources is one group's registries by their path.
type resources map[string]rest.Storage

// install serves every kind of package api that Kubernetes has too, and what
// kubectl asks besides.
func (s *Server) install(server *genericserver.GenericAPIServer, scheme *runtime.Scheme, codecs serializer.CodecFactory, options generic.RESTOptionsGetter, may authorizer.Authorizer) error {
	events, err := eventstorage.NewREST(options, eventLife)
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	core, err := s.coreResources(options, scheme, may)
	if err != nil {
		return err
	}
	core["events"] = events
	apps, err := appsResources(options)
	if err != nil {
		return err
	}
	batch, err := batchResources(options)
	if err != nil {
		return err
	}
	leases, err := leasestorage.NewREST(options)
	if err != nil {
		return fmt.Errorf("leases: %w", err)
	}
	endpointSlices, err := endpointslicestorage.NewREST(options)
	if err != nil {
		return fmt.Errorf("endpointslices: %w", err)
	}
	classes, err := storageclassstorage.NewREST(options)
	if err != nil {
		return fmt.Errorf("storageclasses: %w", err)
	}
	parameters := runtime.NewParameterCodec(scheme)
	group := func(name string, r resources) *genericserver.APIGroupInfo {
		info := genericserver.NewDefaultAPIGroupInfo(name, scheme, parameters, codecs)
		version := versionOf(name)
		info.PrioritizedVersions = []schema.GroupVersion{{Group: name, Version: version}}
		info.VersionedResourcesStorageMap[version] = r
		return &info
	}
	stored, err := storedResources(options, scheme)
	if err != nil {
		return err
	}
	if stored[rbacv1.GroupName], err = s.roleResources(options, may); err != nil {
		return err
	}
	maps.Copy(core, stored[""])
	if err := server.InstallLegacyAPIGroup(genericserver.DefaultLegacyAPIPrefix, group("", core)); err != nil {
		return fmt.Errorf("install the core group: %w", err)
	}
	var groups []*genericserver.APIGroupInfo
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		if name != "" {
			groups = append(groups, group(name, stored[name]))
		}
	}
	if s.cfg.Figures != nil {
		groups = append(groups, s.metricsGroup(scheme, codecs))
	}
	err = server.InstallAPIGroups(append(groups,
		group("apps", apps),
		group("batch", batch),
		group("coordination.k8s.io", resources{"leases": leases}),
		group("discovery.k8s.io", resources{api.EndpointSlices().Resource: endpointSlices}),
		group(api.StorageClasses().Group, resources{api.StorageClasses().Resource: classes}),
		group("events.k8s.io", resources{"events": events}),
		group("authentication.k8s.io", s.identityResources()),
		group("authorization.k8s.io", resources{
			"selfsubjectaccessreviews":  selfsubjectaccessreview.NewREST(may, scheme),
			"selfsubjectrulesreviews":   selfsubjectrulesreview.NewREST(everything{accounts.Roles(s.cfg.Store)}),
			"subjectaccessreviews":      subjectaccessreview.NewREST(may, scheme),
			"localsubjectaccessreviews": localsubjectaccessreview.NewREST(may, scheme),
		}),
	)...)
	if err != nil {
		return fmt.Errorf("install the groups: %w", err)
	}
	return nil
}

func (s *Server) coreResources(options generic.RESTOptionsGetter, scheme *runtime.Scheme, may authorizer.Authorizer) (resources, error) {
	namespaces, namespaceStatus, namespaceFinalize, err := namespacestorage.NewREST(options)
	if err != nil {
		return nil, fmt.Errorf("namespaces: %w", err)
	}
	nodes, err := nodestorage.NewStorage(options, kubeletclient.KubeletClientConfig{}, nil)
	if err != nil {
		return nil, fmt.Errorf("nodes: %w", err)
	}
	pods, err := podstorage.NewStorage(options, nil, nil, budgets{s.cfg.Store}, nil)
	if err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}
	configMaps, err := configmapstorage.NewREST(options)
	if err != nil {
		return nil, fmt.Errorf("configmaps: %w", err)
	}
	secrets, err := secretstorage.NewREST(options)
	if err != nil {
		return nil, fmt.Errorf("secrets: %w", err)
	}
	holders, err := s.accountResources(options, may, pods.Pod, secrets, nodes.Node)
	if err != nil {
		return nil, err
	}
	services, serviceStatus, err := s.newServices(options, scheme)
	if err != nil {
		return nil, fmt.Errorf("services: %w", err)
	}
	controllers, err := replicationcontrollerstorage.NewStorage(options)
	if err != nil {
		return nil, fmt.Errorf("replicationcontrollers: %w", err)
	}
	endpoints, err := endpointsstorage.NewREST(options)
	if err != nil {
		return nil, fmt.Errorf("endpoints: %w", err)
	}
	volumes, volumeStatus, err := volumestorage.NewREST(options)
	if err != nil {
		return nil, fmt.Errorf("persistentvolumes: %w", err)
	}
	claims, claimStatus, err := claimstorage.NewREST(options)
	if err != nil {
		return nil, fmt.Errorf("persistentvolumeclaims: %w", err)
	}
	claims.CreateStrategy = claimCreation{claims.CreateStrategy}
	into := ways{server: s, store: pods.Pod.Store, scheme: scheme, may: may}
	out := resources{
		api.Namespaces().Resource:             namespaces,
		"namespaces/status":                   namespaceStatus,
		"namespaces/finalize":                 namespaceFinalize,
		api.Nodes().Resource:                  nodes.Node,
		"nodes/status":                        nodes.Status,
		api.Pods().Resource:                   pods.Pod,
		"pods/status":                         pods.Status,
		"pods/eviction":                       pods.Eviction,
		"pods/log":                            &podLog{store: pods.Pod.Store, scheme: scheme, logs: s.cfg.Logs},
		"pods/exec":                           podExec{into},
		"pods/attach":                         podAttach{into},
		"pods/ephemeralcontainers":            pods.EphemeralContainers,
		"pods/portforward":                    podPortForward{into},
		"pods/proxy":                          podProxy{into},
		api.ConfigMaps().Resource:             configMaps,
		api.Secrets().Resource:                secrets,
		api.Services().Resource:               services,
		"services/status":                     serviceStatus,
		"services/proxy":                      serviceProxy{into},
		api.Endpoints().Resource:              endpoints,
		api.PersistentVolumes().Resource:      volumes,
		"persistentvolumes/status":            volumeStatus,
		api.PersistentVolumeClaims().Resource: claims,
		"persistentvolumeclaims/status":       claimStatus,
		"replicationcontrollers":              controllers.Controller,
		"replicationcontrollers/status":       controllers.Status,
		"replicationcontrollers/scale":        controllers.Scale,
	}
	maps.Copy(out, holders)
	return out, nil
}

func appsResources(options generic.RESTOptionsGetter) (resources, error) {
	deployments, err := deploymentstorage.NewStorage(options)
	if err != nil {
		return nil, fmt.Errorf("deployments: %w", err)
	}
	replicaSets, err := replicasetstorage.NewStorage(options)
	if err != nil {
		return nil, fmt.Errorf("replicasets: %w", err)
	}
	statefulSets, err := statefulsetstorage.NewStorage(options)
	if err != nil {
		return nil, fmt.Errorf("statefulsets: %w", err)
	}
	daemonSets, daemonSetStatus, err := daemonsetstorage.NewREST(options)
	if err != nil {
		return nil, fmt.Errorf("daemonsets: %w", err)
	}
	revisions, err := controllerrevisionstorage.NewREST(options)
	if err != nil {
		return nil, fmt.Errorf("controllerrevisions: %w", err)
	}
	return resources{
		api.Deployments().Resource: deployments.Deployment,
		"deployments/status":       deployments.Status,
		"deployments/scale":        deployments.Scale,
		api.ReplicaSets().Resource: replicaSets.ReplicaSet,
		"replicasets/status":       replicaSets.Status,
		"replicasets/scale":        replicaSets.Scale,

		api.StatefulSets().Resource:        statefulSets.StatefulSet,
		"statefulsets/status":              statefulSets.Status,
		"statefulsets/scale":               statefulSets.Scale,
		api.DaemonSets().Resource:          daemonSets,
		"daemonsets/status":                daemonSetStatus,
		api.ControllerRevisions().Resource: revisions,
	}, nil
}

func batchResources(options generic.RESTOptionsGetter) (resources, error) {
	jobs, err := jobstorage.NewStorage(options)
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	cronJobs, cronJobStatus, err := cronjobstorage.NewREST(options)
	if err != nil {
		return nil, fmt.Errorf("cronjobs: %w", err)
	}
	return resources{
		api.Jobs().Resource:     jobs.Job,
		"jobs/status":           jobs.Status,
		api.CronJobs().Resource: cronJobs,
		"cronjobs/status":       cronJobStatus,
	}, nil
}
