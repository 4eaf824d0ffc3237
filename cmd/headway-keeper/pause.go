package main

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"
)

// pause is the first process of a pod whose containers share a PID namespace: it waits
// for processes that nobody else waits for, until it is killed. Errors: what wait4
// answers beside "no child".
func pause() error {
	runtime.GOMAXPROCS(1)
	debug.SetMemoryLimit(4 << 20)
	// As the first process the kernel would not end it by these; the Go runtime would.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE, unix.SIGALRM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	for {
		if err := reap(); err != nil {
			return err
		}
		<-ended
	}
}

// reap takes the exits of all children that have ended.
func reap() error {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.ECHILD), err == nil && pid == 0:
			return nil
		case err != nil:
			return os.NewSyscallError("wait4", err)
		}
	}
}
