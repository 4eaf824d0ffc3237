package agent_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"headway.dev/headway/runtime/fake"
)

// processor is the CPU time that this process has used.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkIdleProbes is what 250 pods cost that do nothing but answer an HTTP readiness
// and liveness probe every ten seconds, over loopback, whose other end is in it: each op
// is ten seconds. milli-cores/100pods is the figure; goroutines/pod says that an idle
// probe has none.
func BenchmarkIdleProbes(b *testing.B) {
	const pods = 250
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	at, err := url.Parse(s.URL)
	if err != nil {
		b.Fatal(err)
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		b.Fatal(err)
	}
	srv, machine := newServer(b), fake.New(fake.Config{})
	before := runtime.NumGoroutine()
	a := run(b, srv, machine, b.TempDir())
	for i := range pods {
		p := pod(fmt.Sprintf("web%d", i))
		ask := func() *corev1.Probe {
			return &corev1.Probe{PeriodSeconds: 10, TimeoutSeconds: 9, SuccessThreshold: 1, FailureThreshold: 3,
				ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: at.Hostname(), Port: intstr.FromInt(port), Path: "/"}}}
		}
		p.Spec.Containers[0].ReadinessProbe, p.Spec.Containers[0].LivenessProbe = ask(), ask()
		srv.assign(p)
	}
	for ready := 0; ready < pods; time.Sleep(50 * time.Millisecond) {
		ready = 0
		for i := range pods {
			if st := srv.status(pod(fmt.Sprintf("web%d", i))); len(st.ContainerStatuses) > 0 && st.ContainerStatuses[0].Ready {
				ready++
			}
		}
	}
	if err := a.Save(); err != nil { // what follows the start
		b.Fatal(err)
	}
	goroutines := runtime.NumGoroutine() - before
	used, began := processor(b), time.Now()
	for b.Loop() {
		time.Sleep(10 * time.Second)
	}
	share := float64(processor(b)-used) / float64(time.Since(began))
	b.ReportMetric(share*1000*100/pods, "milli-cores/100pods")
	b.ReportMetric(float64(goroutines)/pods, "goroutines/pod")
	if failed := srv.said("Unhealthy"); len(failed) > 0 {
		b.Fatal(failed[0])
	}
}
