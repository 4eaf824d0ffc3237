package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Exec runs a command in a container, kills it after timeout, and writes what it
// prints to out. killed says that it was.
type Exec func(ctx context.Context, id string, command []string, timeout time.Duration, out io.Writer) (code int32, killed bool, err error)

// Request is one check of one container.
type Request struct {
	Handler   corev1.ProbeHandler
	Timeout   time.Duration
	IP        string // of the pod
	Container *corev1.Container
	ID        string // of the engine
}

// Answer is what a check found.
type Answer struct {
	Result  Result
	Message string // why it failed, or could not be made
	Warning string // it succeeded, but
}

// most is what is read of an answer.
const most = 10 << 10

// Check asks once.
func Check(ctx context.Context, req Request, exec Exec) Answer {
	switch h := req.Handler; {
	case h.Exec != nil:
		return command(ctx, req, exec)
	case h.HTTPGet != nil:
		return web(ctx, req)
	case h.TCPSocket != nil:
		return connect(ctx, req)
	case h.GRPC != nil:
		return serving(ctx, req)
	}
	return Answer{Message: "the probe says nothing that could be asked"}
}

func failed(format string, args ...any) Answer {
	return Answer{Result: Failure, Message: fmt.Sprintf(format, args...)}
}

func command(ctx context.Context, req Request, exec Exec) Answer {
	out := &Output{Limit: most}
	code, killed, err := exec(ctx, req.ID, req.Handler.Exec.Command, req.Timeout, out)
	switch {
	case ctx.Err() != nil:
		return Answer{Message: "interrupted"}
	case killed:
		return failed("command timed out: %q timed out after %s", strings.Join(req.Handler.Exec.Command, " "), req.Timeout)
	case err != nil:
		return Answer{Message: err.Error()}
	case code != 0:
		return failed("%s", out)
	}
	return Answer{Result: Success}
}

// dialer closes its connections at once, so that thousands of checks leave no sockets
// that wait.
func dialer() *net.Dialer {
	return &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: 1})
		})
		return errors.Join(err, failed)
	}}
}

func connect(ctx context.Context, req Request) Answer {
	port, err := Port(req.Handler.TCPSocket.Port, req.Container)
	if err != nil {
		return Answer{Message: err.Error()}
	}
	host := req.Handler.TCPSocket.Host
	if host == "" {
		host = req.IP
	}
	dialing, cancel := context.WithTimeout(ctx, req.Timeout)
	defer cancel()
	conn, err := dialer().DialContext(dialing, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return interrupted(ctx, failed("%s", err))
	}
	defer conn.Close() // it was only to be opened
	return Answer{Result: Success}
}

// interrupted is what a failure is worth when whoever asked gave up meanwhile.
func interrupted(ctx context.Context, a Answer) Answer {
	if ctx.Err() != nil {
		return Answer{Message: "interrupted"}
	}
	return a
}

// Port of a container: a number, or a name that it gives to one of its ports.
func Port(p intstr.IntOrString, c *corev1.Container) (int, error) {
	port := p.IntValue()
	if p.Type == intstr.String {
		n, err := strconv.Atoi(p.StrVal)
		for _, named := range c.Ports {
			if named.Name == p.StrVal {
				n, err = int(named.ContainerPort), nil
			}
		}
		if err != nil {
			return 0, fmt.Errorf("container %s has no port named %q", c.Name, p.StrVal)
		}
		port = n
	}
	if port <= 0 || port > 65535 {
		return 0, fmt.Errorf("%d is no port", port)
	}
	return port, nil
}

// agentName is who asks.
const agentName = "kube-probe/1.37"

func serving(ctx context.Context, req Request) Answer {
	asking, cancel := context.WithTimeout(ctx, req.Timeout)
	defer cancel()
	to := net.JoinHostPort(req.IP, strconv.Itoa(int(req.Handler.GRPC.Port)))
	conn, err := grpc.NewClient("passthrough:///"+to, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUserAgent(agentName),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return dialer().DialContext(ctx, "tcp", to) }))
	if err != nil {
		return Answer{Message: err.Error()}
	}
	defer conn.Close() // nothing is under way on it any more
	service := ""
	if s := req.Handler.GRPC.Service; s != nil {
		service = *s
	}
	said, err := grpc_health_v1.NewHealthClient(conn).Check(metadata.NewOutgoingContext(asking, metadata.MD{}), &grpc_health_v1.HealthCheckRequest{Service: service})
	switch status.Code(err) {
	case codes.OK:
	case codes.Unimplemented:
		return failed("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s", status.Convert(err).Message())
	case codes.DeadlineExceeded:
		return interrupted(ctx, failed("timeout: no answer from %s within %s", to, req.Timeout))
	default:
		return interrupted(ctx, failed("error: health rpc probe failed: %v", err))
	}
	if said.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		return failed("service unhealthy (responded with %q)", said.GetStatus())
	}
	return Answer{Result: Success}
}

// Output keeps the first bytes of what is written to it. Safe for concurrent use.
type Output struct {
	Limit int

	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer; it never fails.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p[:min(len(p), o.Limit-len(o.text))]...)
	return len(p), nil
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.ToValidUTF8(string(o.text), "\uFFFD")
}
