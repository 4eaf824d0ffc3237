package containerd

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The end of the log is the message of a container that fails without one, if its policy
// says so: its last 80 lines, and of these the last 2048 bytes.
func TestMessageFromLog(t *testing.T) {
	n := newNode(t)
	for _, tc := range []struct {
		args   []string
		policy corev1.TerminationMessagePolicy
		want   func(string) bool
	}{
		{[]string{"fail", "one", "two"}, corev1.TerminationMessageFallbackToLogsOnError, func(m string) bool { return m == "one\ntwo\n" }},
		{[]string{"fail", "one", "two"}, corev1.TerminationMessageReadFile, func(m string) bool { return m == "" }},
		{[]string{"message", "the reason why"}, corev1.TerminationMessageFallbackToLogsOnError, func(m string) bool { return m == "the reason why" }},
		{[]string{"echo", "fine"}, corev1.TerminationMessageFallbackToLogsOnError, func(m string) bool { return m == "" }},
		{append([]string{"fail"}, strings.Fields(strings.Repeat("line ", 100))...), corev1.TerminationMessageFallbackToLogsOnError, func(m string) bool { return m == strings.Repeat("line\n", 80) }},
		{append([]string{"fail"}, strings.Repeat("x", 3000)), corev1.TerminationMessageFallbackToLogsOnError, func(m string) bool { return m == strings.Repeat("x", 2047)+"\n" }},
		{[]string{"message", strings.Repeat("x", 5000)}, corev1.TerminationMessageReadFile, func(m string) bool { return m == strings.Repeat("x", 4096) }},
	} {
		pod := testPod(tc.args...)
		pod.Spec.Containers[0].TerminationMessagePolicy = tc.policy
		c := n.exit(pod.UID, n.start(pod).ID)
		if !tc.want(c.Message) {
			t.Errorf("%.40v with %s: %d bytes %.80q", tc.args, tc.policy, len(c.Message), c.Message)
		}
	}
	many := testPod("message", strings.Repeat("x", 5000))
	for i := range 5 {
		many.Spec.InitContainers = append(many.Spec.InitContainers, corev1.Container{Name: fmt.Sprint("i", i), Image: testImage})
	}
	if c := n.exit(many.UID, n.start(many).ID); len(c.Message) != 2048 {
		t.Errorf("one of six messages has %d bytes", len(c.Message))
	}
}

// A kill between the exit and its message loses neither.
func TestMessageFromLogAcrossRestart(t *testing.T) {
	n := newNode(t)
	pod := testPod("fail", "the reason why")
	pod.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	c := n.exit(pod.UID, n.start(pod).ID)
	n.close()
	path := n.pod(pod.UID).containerRecord(c.ID)
	var record containerRecord
	if ok, err := readRecord(path, &record); !ok || err != nil {
		t.Fatal(ok, err)
	}
	record.Message, record.FromLog = "", true
	if err := writeRecord(path, record); err != nil {
		t.Fatal(err)
	}
	n.open()
	if c := n.exit(pod.UID, c.ID); c.Message != "the reason why\n" || c.ExitCode != 3 || c.Reason != "Error" {
		t.Fatalf("%+v", c)
	}
}

// The pod's stop signal goes before the image's.
func TestStopSignal(t *testing.T) {
	n := newNode(t)
	pod, usr1 := testPod("term", "0s"), corev1.SIGUSR1
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{StopSignal: &usr1}
	c := n.start(pod)
	n.ready(pod, "ready")
	if err := n.StopContainer(context.Background(), c.ID, time.Minute); err != nil {
		t.Fatal(err)
	}
	n.exit(pod.UID, c.ID)
	if got := n.logs(all(pod)); got != "ready\ngot user defined signal 1\n" {
		t.Fatalf("log: %q", got)
	}
}
