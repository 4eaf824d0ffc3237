package server

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"headway.dev/headway/server/accounts"
	"headway.dev/headway/server/storage"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	handlersmetrics "k8s.io/apiserver/pkg/endpoints/handlers/metrics"
	apimetrics "k8s.io/apiserver/pkg/endpoints/metrics"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Versions of the Kubernetes API that is served; kept equal to go.mod's by a test.
const (
	kubernetesVersion = "1.37.2"
)

// requestTimeout bounds a request that is no watch and no log.
const requestTimeout = time.Minute

// buildAPI puts the Kubernetes API together.
func (s *Server) buildAPI() (*genericserver.GenericAPIServer, error) {
	scheme := newScheme()
	codecs := serializer.NewCodecFactory(scheme)
	definitions := definitions(scheme)

	c := genericserver.NewConfig(codecs)
	c.ExternalAddress = s.cfg.Listener.Addr().String()
	c.LoopbackClientConfig = &rest.Config{} // demanded, never used: nothing here is a client of itself
	c.EffectiveVersion = effectiveVersion(s.cfg.Version)
	c.EnableProfiling = false
	c.EnableIndex = true
	c.EnableMetrics = false // served below, together with ours
	c.RequestTimeout = requestTimeout
	c.StorageObjectCountTracker = nil
	c.DisabledPostStartHooks.Insert("max-in-flight-filter")
	c.AdmissionControl = &gate{store: s.cfg.Store, scheme: scheme}
	c.Authentication.Authenticator = authenticator.RequestFunc(s.signIn)
	c.Authentication.APIAudiences = accounts.Audiences()
	c.Authorization.Authorizer = permit(accounts.Roles(s.cfg.Store))
	c.LongRunningFunc = longRunning
	c.BuildHandlerChainFunc = s.chain
	c.AddReadyzChecks(healthz.NamedCheck("store", s.ready))
	namer := openapinamer.NewDefinitionNamer(scheme)
	c.OpenAPIConfig = genericserver.DefaultOpenAPIConfig(definitions, namer)
	c.OpenAPIConfig.Info.Title = "Headway"
	c.OpenAPIV3Config = genericserver.DefaultOpenAPIV3Config(definitions, namer)
	c.OpenAPIV3Config.Info.Title = "Headway"
	c.SkipOpenAPIInstallation = true // built on demand instead, see specs

	api, err := c.Complete(nil).New("headway", genericserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	options := storage.NewOptions(s.cfg.Store, scheme, codecs, s.cfg.Now)
	if err := s.install(api, scheme, codecs, options, c.Authorization.Authorizer); err != nil {
		return nil, err
	}
	if err := s.serveKeys(api); err != nil {
		return nil, err
	}
	apimetrics.Register()
	handlersmetrics.Register()
	gatherers := prometheus.Gatherers{legacyregistry.DefaultGatherer}
	if s.cfg.Metrics != nil {
		gatherers = append(gatherers, s.cfg.Metrics)
	}
	api.Handler.NonGoRestfulMux.Handle("/metrics", promhttp.HandlerFor(gatherers, promhttp.HandlerOpts{}))
	specs := newSpecs(api.Handler.GoRestfulContainer, c.OpenAPIConfig, c.OpenAPIV3Config)
	api.Handler.NonGoRestfulMux.Handle("/openapi/v2", specs)
	api.Handler.NonGoRestfulMux.Handle("/openapi/v3", specs)
	api.Handler.NonGoRestfulMux.HandlePrefix("/openapi/v3/", specs)
	api.PrepareRun()
	return api, nil
}

// ready says whether requests can be answered.
func (s *Server) ready(*http.Request) error {
	select {
	case <-s.cfg.Store.Synced():
	default:
		return errors.New("the store is not loaded yet")
	}
	if s.serving.Err() != nil {
		return errors.New("the server is stopping")
	}
	if s.cfg.Ready == nil {
		return nil
	}
	return s.cfg.Ready()
}

// version is what /version says: Kubernetes' number, which clients compare with
// their own, and Headway's behind it.
type version struct {
	compatibility.EffectiveVersion
	headway string
}

func effectiveVersion(headway string) version {
	return version{EffectiveVersion: compatibility.NewEffectiveVersionFromString(kubernetesVersion, "", ""), headway: headway}
}

func (v version) Info() *apimachineryversion.Info {
	info := v.EffectiveVersion.Info()
	info.GitVersion = "v" + kubernetesVersion + "+headway"
	if v.headway != "" {
		info.GitVersion += "." + v.headway
	}
	info.GitCommit, info.GitTreeState, info.BuildDate = "", "", ""
	return info
}
