// Incluster is a client of the API in a pod, as people write them: it takes everything
// from rest.InClusterConfig, and says over HTTP what it could do.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve() error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	if len(os.Args) > 1 { // by name instead of by address
		config.Host = "https://" + os.Args[1]
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	namespace, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return err
	}
	answer := func(path string, list func(context.Context) ([]string, error)) {
		http.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
			defer cancel()
			names, err := list(ctx)
			if err != nil {
				fmt.Fprintln(w, "error:", err)
				return
			}
			fmt.Fprintln(w, "found:", strings.Join(names, " "))
		})
	}
	answer("/pods", func(ctx context.Context) (names []string, err error) {
		list, err := client.CoreV1().Pods(string(namespace)).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, p := range list.Items {
			names = append(names, p.Name)
		}
		return names, nil
	})
	answer("/secrets", func(ctx context.Context) (names []string, err error) {
		list, err := client.CoreV1().Secrets(string(namespace)).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, s := range list.Items {
			names = append(names, s.Name)
		}
		return names, nil
	})
	return http.ListenAndServe(":8080", nil)
}
