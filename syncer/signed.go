package syncer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/git"
	"headway.dev/headway/syncer/render"
	"time"
)

// Unsigned implements Commits. The signers are those of the commit from, whose
// configuration stands in the folder root; of to itself when there is no from.
func (c *Checkout) Unsigned(ctx context.Context, from, root, to string, now time.Time) ([]git.Unsigned, error) {
	at := cmp.Or(from, to)
	name := path.Join(root, api.ConfigFile)
	text, err := c.Objects.ShowFile(ctx, at, name)
	if errors.Is(err, git.ErrNotFound) {
		return nil, nil // the defaults ask for no signatures
	}
	if err != nil {
		return nil, err
	}
	config, problems := api.DecodeConfig(name, text)
	switch {
	case len(problems) > 0 && from == "":
		return nil, nil // rendering it says so, and refuses the commit
	case len(problems) > 0:
		return nil, fmt.Errorf("commit %s was applied and its settings cannot be read any more: %s", short(from), problems[0])
	case config.AllowedSigners == (api.AllowedSigners{}):
		return nil, nil
	}
	signers, err := c.Objects.SignersAt(ctx, at, config.AllowedSigners.SSH, config.AllowedSigners.OpenPGP)
	if err != nil && from == "" && ctx.Err() == nil {
		return nil, nil // as above
	}
	if err != nil {
		return nil, err
	}
	return c.Objects.VerifyRange(ctx, from, to, signers, now)
}

// signersProblems says what is wrong with the files that name the signers: once
// they are applied, nobody could push any more.
func signersProblems(tree render.Tree, config *api.Config) ([]api.Problem, error) {
	var out []api.Problem
	var signers git.Signers
	for _, f := range []struct {
		field, file string
		add         func(name string, content []byte) error
	}{
		{"allowedSigners.ssh", config.AllowedSigners.SSH, signers.AddAllowed},
		{"allowedSigners.openpgp", config.AllowedSigners.OpenPGP, signers.AddKeyring},
	} {
		if f.file == "" {
			continue
		}
		text, err := tree.Read(f.file)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", f.file, err)
		}
		before := signers.Len()
		if err := f.add(f.file, text); err != nil {
			out = append(out, config.Problem(f.field, err.Error()))
		} else if signers.Len() == before {
			out = append(out, config.Problem(f.field, "the file names nobody, so that no later commit could be accepted: take the field out if commits need no signature"))
		}
	}
	return out, nil
}

// maxUnsigned bounds how many commits a refusal names.
const maxUnsigned = 20

// unsigned refuses a commit that comes with commits which nobody has signed who may.
// Who may is decided by the applied commit, so a commit cannot let itself in; it
// fails closed. An operator may let one commit pass.
func (s *Syncer) unsigned(ctx context.Context, src *api.Source, commit string, commits Commits) (refusal string, names []string, err error) {
	if allowance(src, commit).Unsigned {
		return "", nil, nil
	}
	applied := src.Status.Applied
	root := src.Status.Path
	if applied == "" {
		root = src.Spec.Path
	}
	bad, err := commits.Unsigned(ctx, applied, root, commit, s.cfg.Now())
	if err != nil {
		return "", nil, fmt.Errorf("verify the signatures up to commit %s: %w (headway sync%s --allow-unsigned %s lets it pass unverified)", short(commit), err, s.flag(), commit)
	}
	if len(bad) == 0 {
		return "", nil, nil
	}
	for i, u := range bad {
		if i == maxUnsigned {
			names = append(names, fmt.Sprintf("… and %s more", thousands(len(bad)-i)))
			break
		}
		names = append(names, u.String())
	}
	whose, again := "the applied commit "+short(applied)+" allows to sign", "git rebase --exec 'git commit --amend --no-edit -S' "+short(applied)
	if applied == "" {
		whose, again = "its own settings allow to sign", "git commit --amend --no-edit -S"
	}
	verb := "are"
	if len(bad) == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%s %s not signed by anybody whom %s; nothing is changed. Have one of those sign: %s. If there is nobody left who can: headway sync%s --allow-unsigned %s --why …",
		plural(len(bad), "commit"), verb, whose, again, s.flag(), commit), names, nil
}
