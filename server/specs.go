package server

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/kube-openapi/pkg/builder"
	openapicommon "k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/util"
	generated "k8s.io/kubernetes/pkg/generated/openapi"
	"k8s.io/metrics/pkg/apis/metrics"
)

// specsKept is how long the OpenAPI documents stay in memory after the last
// request for one.
const specsKept = 2 * time.Minute

// specs serves /openapi/v2 and /openapi/v3. The documents are some ten megabytes
// that only kubectl explain and a few clients ask for, so they are built at the
// first request and dropped when nobody asks any more.
type specs struct {
	container *restful.Container
	v2        *openapicommon.Config
	v3        *openapicommon.OpenAPIV3Config

	mu      sync.Mutex
	current http.Handler
	drop    *time.Timer
}

func newSpecs(container *restful.Container, v2 *openapicommon.Config, v3 *openapicommon.OpenAPIV3Config) *specs {
	return &specs{container: container, v2: v2, v3: v3}
}

func (s *specs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h, err := s.handler()
	if err != nil {
		responsewriters.InternalError(w, r, err)
		return
	}
	h.ServeHTTP(w, r)
}

func (s *specs) handler() (http.Handler, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drop != nil {
		s.drop.Stop()
	}
	s.drop = time.AfterFunc(specsKept, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.current = nil
	})
	if s.current != nil {
		return s.current, nil
	}
	v2, err := builder.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices(s.container.RegisteredWebServices()), s.v2)
	if err != nil {
		return nil, fmt.Errorf("build the OpenAPI v2 document: %w", err)
	}
	v2.Definitions = handler.PruneDefaults(v2.Definitions)
	m := mux.NewPathRecorderMux("openapi")
	handler.NewOpenAPIService(v2).RegisterOpenAPIVersionedService("/openapi/v2", m)
	routes.OpenAPI{V3Config: s.v3}.InstallV3(s.container, m)
	s.current = m
	return m, nil
}

// definitions returns Kubernetes' OpenAPI definitions without those of types that
// the scheme does not know and no known type needs: most of them.
func definitions(scheme *runtime.Scheme) openapicommon.GetOpenAPIDefinitions {
	return func(ref openapicommon.ReferenceCallback) map[string]openapicommon.OpenAPIDefinition {
		all := generated.GetOpenAPIDefinitions(ref)
		kept := map[string]openapicommon.OpenAPIDefinition{}
		var keep func(name string)
		keep = func(name string) {
			if _, done := kept[name]; done {
				return
			}
			d, ok := all[name]
			if !ok {
				return
			}
			kept[name] = d
			for _, needed := range d.Dependencies {
				keep(needed)
			}
		}
		for name := range all {
			if strings.HasPrefix(name, "io.k8s.apimachinery.") {
				keep(name)
			}
		}
		for gvk := range scheme.AllKnownTypes() {
			if gvk.Version != "v1" && gvk.Version != versionOf(gvk.Group) && gvk.Group != metrics.GroupName { // a Scale is always of v1
				continue
			}
			if obj, err := scheme.New(gvk); err == nil {
				keep(util.GetCanonicalTypeName(obj))
			}
		}
		return kept
	}
}
