// The program in the images of the tests: it does what its first argument says.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Println("no argument")
		return
	}
	arg := func(n int) string {
		if len(os.Args) > n {
			return os.Args[n]
		}
		return ""
	}
	switch os.Args[1] {
	case "exit":
		code, _ := strconv.Atoi(arg(2))
		os.Exit(code)
	case "sleep":
		for {
			time.Sleep(time.Hour) // not select: Go would call that a deadlock
		}
	case "burn":
		held := make([]byte, 32<<20)
		for i := 0; ; i++ {
			held[i%len(held)]++
		}
	case "echo":
		fmt.Println(strings.Join(os.Args[2:], " "))
	case "say": // the same, and fail when it cannot
		for _, to := range []*os.File{os.Stdout, os.Stderr} {
			if _, err := fmt.Fprintln(to, arg(2)); err != nil {
				os.Exit(4)
			}
		}
	case "message":
		_ = os.WriteFile("/dev/termination-log", []byte(arg(2)), 0)
		os.Exit(3)
	case "fail": // with a line for each argument
		for _, line := range os.Args[2:] {
			fmt.Println(line)
		}
		os.Exit(3)
	case "env":
		for _, e := range os.Environ() {
			fmt.Println(e)
		}
	case "where":
		dir, _ := os.Getwd()
		host, _ := os.Hostname()
		groups, _ := os.Getgroups()
		fmt.Println(dir, host, os.Getuid(), os.Getgid(), groups)
	case "cat":
		for _, p := range os.Args[2:] {
			b, err := os.ReadFile(p)
			if err != nil {
				fmt.Println(err)
			}
			os.Stdout.Write(b)
		}
	case "copy": // standard input, until it ends
		_, _ = io.Copy(os.Stdout, os.Stdin)
		fmt.Fprintln(os.Stderr, "done")
		os.Exit(4)
	case "size": // of the terminal, at each change
		c := make(chan os.Signal, 8)
		signal.Notify(c, syscall.SIGWINCH)
		for {
			size, err := unix.IoctlGetWinsize(1, unix.TIOCGWINSZ)
			if err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			fmt.Printf("%dx%d\n", size.Col, size.Row)
			<-c
		}
	case "loopback": // answer at a port of the loopback address
		l, err := net.Listen("tcp", "127.0.0.1:"+arg(2))
		for err == nil {
			var conn net.Conn
			if conn, err = l.Accept(); err == nil {
				fmt.Fprintln(conn, "hello")
				err = conn.Close()
			}
		}
		fmt.Println(err)
		os.Exit(1)
	case "links":
		for _, path := range os.Args[2:] {
			to, err := os.Readlink(path)
			fmt.Println(path, to, err)
		}
	case "write":
		if err := os.WriteFile(arg(2), []byte("x"), 0o644); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	case "fill": // a file, with a MiB
		if err := os.WriteFile(arg(2), make([]byte, 1<<20), 0o644); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	case "term": // on SIGTERM: count it, exit 7 after a while
		c := make(chan os.Signal, 8)
		signal.Notify(c, syscall.SIGTERM, syscall.SIGUSR1)
		fmt.Println("ready")
		s := <-c
		fmt.Println("got", s)
		wait, _ := time.ParseDuration(arg(2))
		select {
		case s = <-c:
			fmt.Println("again", s)
			os.Exit(9)
		case <-time.After(wait):
		}
		os.Exit(7)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		for {
			time.Sleep(time.Hour)
		}
	case "eat": // memory
		var all [][]byte
		for {
			b := make([]byte, 1<<20)
			for i := range b {
				b[i] = byte(i)
			}
			all = append(all, b)
		}
	case "serve":
		fmt.Println("ready")
		err := http.ListenAndServe(":"+arg(2), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			host, _ := os.Hostname()
			fmt.Fprintf(w, "hello from %s to %s", host, r.RemoteAddr)
		}))
		fmt.Println(err)
		os.Exit(1)
	case "get":
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			resp, err := http.Get(arg(2))
			if err == nil {
				_, _ = io.Copy(os.Stdout, resp.Body)
				fmt.Println()
				return
			}
			if time.Now().After(deadline) {
				fmt.Println(err)
				os.Exit(1)
			}
		}
	case "addresses":
		addrs, _ := net.InterfaceAddrs()
		fmt.Println(addrs)
	case "flood": // so many lines
		n, _ := strconv.Atoi(arg(2))
		w := bufio.NewWriter(os.Stdout)
		for i := range n {
			fmt.Fprintf(w, "line %09d %s\n", i, strings.Repeat("x", 80))
		}
		w.Flush()
	case "processes": // numbers and commands of those that it sees
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range dirs {
			line, err := os.ReadFile(dir + "/cmdline")
			fmt.Println(filepath.Base(dir), strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " ")), err)
		}
	case "orphan": // leave a process behind
		cmd := exec.Command("/proc/self/exe", "sleep")
		fmt.Println(cmd.Start())
	case "list": // what is in directories
		for _, dir := range os.Args[2:] {
			entries, err := os.ReadDir(dir)
			for _, e := range entries {
				fmt.Println(e.Name())
			}
			fmt.Println(err)
		}
	case "tick": // a line whenever, until killed
		for i := 0; ; i++ {
			fmt.Println("tick", i)
			time.Sleep(10 * time.Millisecond)
		}
	}
}
