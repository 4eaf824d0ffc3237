package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// kubernetesVersion is the release whose types, validation and API are built in.
const kubernetesVersion = "v1.37.2"

func versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			if output == "json" {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{
					"version": version, "kubernetes": kubernetesVersion, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
				})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "headway %s (Kubernetes API %s, %s, %s/%s)\n", version, kubernetesVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
	outputFlag(cmd, &output)
	return cmd
}

// outputFlag adds -o to a command whose output a script may want.
func outputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "", "output format: json, or nothing for a person")
}

func checkOutput(output string) error {
	if output != "" && output != "json" {
		return fmt.Errorf("-o %s: use -o json or leave it out", output)
	}
	return nil
}
