package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a script that completes headway's commands in your shell",
		Long: `Prints a script with which a shell completes the commands, flags and kinds of
headway when you press Tab. To install it for good:

  bash   headway completion bash > /etc/bash_completion.d/headway
  zsh    headway completion zsh > "${fpath[1]}/_headway"
  fish   headway completion fish > ~/.config/fish/completions/headway.fish

For the shell that you are in alone:

  bash   source <(headway completion bash)

bash needs the package bash-completion; zsh needs "autoload -U compinit; compinit"
in ~/.zshrc. Start a new shell afterwards.`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(out, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(out)
			case "fish":
				return cmd.Root().GenFishCompletion(out, true)
			}
			return fmt.Errorf("shell %q: bash, zsh and fish have completion", args[0])
		},
	}
}
