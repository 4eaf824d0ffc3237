package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/api"
	"headway.dev/headway/scheduler"
	"headway.dev/headway/store"
	"headway.dev/headway/syncer"
	"headway.dev/headway/syncer/forge"
	"headway.dev/headway/syncer/git"
	"headway.dev/headway/syncer/render"
)

// openSource makes the follower of the main source, whose repository is the hosted one
// or a clone of a forge's, and what makes those of the others.
func (c *cluster) openSource(ctx context.Context) error {
	src := c.cfg.source
	var err error
	if c.token, err = pushToken(c.cfg.dir); err != nil {
		return err
	}
	c.clones = &clones{cluster: c.name, dir: c.cfg.dir, token: c.token, log: c.log.With("component", "git")}
	c.sources = newSources(c.store, c.log.With("component", "sources"))
	c.sources.clones = c.clones
	c.sources.open, c.sources.stale = c.openFurther, func(f *follower) bool { return f.clone.access != c.accessOf(f.name, f.spec).real() }
	c.sources.close = func(f *follower) { c.clones.leave(f.clone) }
	spec := api.SourceSpec{URL: redacted(src.url), Ref: src.fullRef(), Path: src.path}
	config := c.syncerConfig(api.MainSource, spec, src.poll)
	var main *follower
	if src.url == "" {
		main, err = c.openHosted(ctx, config)
	} else {
		main, err = c.openMain(ctx, config)
	}
	if err != nil {
		return err
	}
	c.sources.put(main)
	return c.openWebhook()
}

// syncerConfig is the same for all sources.
func (c *cluster) syncerConfig(name string, spec api.SourceSpec, poll time.Duration) syncer.Config {
	return syncer.Config{
		Server: c.identity, Store: c.store, Fence: c.fence, Source: name, Spec: spec, Poll: poll, Metrics: c.metrics, Services: c.services,
		Capacity: func(leaving map[types.UID]bool, asks []syncer.Ask) ([]syncer.Answer, bool) {
			return capacity(c.store, leaving, asks)
		},
		Now: time.Now,
		Log: c.logOf("syncer", name),
	}
}

func (c *cluster) fence() store.Fence { return c.leader.current() }

// logOf is the log of a component; those of further sources name theirs.
func (c *cluster) logOf(component, source string) *slog.Logger {
	log := c.log.With("component", component)
	if source != api.MainSource {
		log = log.With("source", source)
	}
	return log
}

// openHosted makes the follower of the hosted repository.
func (c *cluster) openHosted(ctx context.Context, config syncer.Config) (*follower, error) {
	cache := render.NewCache(0)
	checkout := &syncer.Checkout{Cache: cache}
	config.Commits, config.Receipts = checkout, c.hostedReceipts
	f := &follower{name: config.Source, spec: config.Spec, syncer: syncer.New(config)}
	hosted, err := git.Open(ctx, git.Config{
		Dir: c.cfg.dir.repository(), Cluster: c.name, Keeper: c.cfg.keeper,
		Tokens: map[string]string{"git": c.token}, Refs: c.refs,
		Follows: f.syncer.Follows,
		AllowRewind: func(_ context.Context, u git.Update) (bool, error) {
			return f.syncer.AllowRewind(u.New), nil
		},
		Judge:  f.syncer.JudgePush(cache),
		Follow: f.syncer.Follow,
		Log:    c.log.With("component", "git"),
	})
	if err != nil {
		return nil, err
	}
	c.hosted, f.repository = hosted, hosted.Repository
	checkout.Objects, checkout.Keeper = f.repository, f.repository
	newest := func(ctx context.Context) (string, error) { return f.repository.Resolve(ctx, config.Spec.Ref) }
	c.finish(f, cache, newest, checkout, c.noterConfig(f), syncer.LiveConfig{})
	return f, nil
}

// capacity asks the scheduler for the syncer: siblings do not know each other.
func capacity(r store.Reader, leaving map[types.UID]bool, asks []syncer.Ask) ([]syncer.Answer, bool) {
	questions := make([]scheduler.Ask, len(asks))
	for i, a := range asks {
		questions[i] = scheduler.Ask(a)
	}
	found, ok := scheduler.Fit(r, leaving, questions)
	answers := make([]syncer.Answer, len(found))
	for i, a := range found {
		answers[i] = syncer.Answer(a)
	}
	return answers, ok
}

// finish makes the parts that are the same for every repository.
func (c *cluster) finish(f *follower, cache *render.Cache, newest func(context.Context) (string, error), checkout *syncer.Checkout, noter syncer.NoterConfig, live syncer.LiveConfig) {
	f.planner = newPlanner(f.syncer, f.repository, cache, newest)
	f.noter = syncer.NewNoter(noter)
	log := c.logOf("syncer", f.name)
	checkout.Unwritten = func(problems []api.Problem) {
		for _, p := range problems {
			log.Warn("the live ref does not show a drift", "problem", p.String())
		}
	}
	live.Repository, live.Edits, live.Cluster, live.Metrics = f.repository, checkout.LiveEdits, c.name, c.metrics
	f.live = syncer.NewLiveRef(f.syncer, live)
	f.add("syncer", f.syncer)
	f.add("live ref", f.live)
	f.add("noter", f.noter)
	f.add("runtime drift", syncer.NewRuntimeWatch(f.syncer, c.metrics))
	if f.publisher != nil {
		f.add("publisher", f.publisher)
	}
}

func (c *cluster) noterConfig(f *follower) syncer.NoterConfig {
	return syncer.NoterConfig{
		Syncer: f.syncer, Store: c.store, Fence: c.fence,
		Notes: f.repository, Cluster: c.name, Metrics: c.metrics, Now: time.Now, Log: c.logOf("noter", f.name),
	}
}

// restoredNotes is where the notes of an earlier cluster are pushed to, for a new
// hosted repository to go on from: its own notes nobody may push.
func (c *cluster) restoredNotes() string { return "refs/notes/restore/" + c.name }

// hostedReceipts reads which Jobs are done, for a cluster that has applied nothing
// yet. The pushed ref is looked up in the store, where it is before git has it.
func (c *cluster) hostedReceipts(ctx context.Context, commit string) ([]syncer.Done, error) {
	tip, err := c.refs.At(ctx, c.restoredNotes())
	if err != nil {
		return nil, err
	}
	if tip != "" {
		if err := c.hosted.RestoreNotes(ctx, tip); err != nil {
			return nil, err
		}
	}
	done, err := syncer.DoneBefore(ctx, c.hosted, api.MainSource, commit)
	if errors.Is(err, git.ErrNotFound) {
		return nil, nil // a push under judgement: it is judged again when it is there
	}
	return done, err
}

// openMain makes the follower of the main source when that is on a forge.
func (c *cluster) openMain(ctx context.Context, config syncer.Config) (*follower, error) {
	src := c.cfg.source
	used, err := c.clones.use(ctx, access{url: src.url, netrc: src.netrc, sshKey: src.sshKey, knownHosts: src.knownHosts}, c.cfg.dir.forge())
	if err != nil {
		return nil, fmt.Errorf("--repo: %w", err)
	}
	return c.openForge(used, used.Forge, config, statusesOf{cluster: c.name, path: src.path, forgeConfig: src.forge})
}

// openFurther makes the follower of a further source.
func (c *cluster) openFurther(ctx context.Context, src *api.Source) (*follower, error) {
	a := c.accessOf(src.Name, src.Spec)
	used, err := c.clones.use(ctx, a, c.clones.folder(a))
	if err != nil {
		return nil, err
	}
	own := c.name + "." + src.Name // a name that no path of the main source can be
	statuses := statusesOf{cluster: own, path: src.Spec.Path}
	if token := c.credentials(src.Name, "forge-token"); exists(token) {
		statuses.token = token
	}
	config := c.syncerConfig(src.Name, src.Spec, src.Spec.Poll.Duration)
	f, err := c.openForge(used, used.As(own), config, statuses)
	if err != nil {
		c.clones.leave(used)
		return nil, err
	}
	f.uid = src.UID
	return f, nil
}

// credentials is the file of a further source's credentials on this server.
func (c *cluster) credentials(source, file string) string {
	dir := c.cfg.source.credentials
	if dir == "" {
		dir = c.cfg.dir.credentials()
	}
	return filepath.Join(dir, source, file)
}

// accessOf is what a further source's repository is read with: the source's own files,
// or else those of the main source.
func (c *cluster) accessOf(name string, spec api.SourceSpec) access {
	pick := func(file, or string) string {
		if own := c.credentials(name, file); exists(own) || or == "" {
			return own
		}
		return or
	}
	src := c.cfg.source
	a := access{url: spec.URL}
	switch {
	case git.BehindSSH(spec.URL):
		a.sshKey, a.knownHosts = pick("ssh-key", src.sshKey), pick("known-hosts", src.knownHosts)
	case strings.Contains(spec.URL, "://"):
		a.netrc, a.netrcMayBe = pick("netrc", src.netrc), true
	}
	return a
}

// exists says whether a file is there. One that cannot be looked at counts as there:
// who reads it says why not.
func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}

// openForge makes the follower of a repository that is hosted elsewhere. repo is the
// clone as this source has it.
func (c *cluster) openForge(used *clone, repo *git.Forge, config syncer.Config, statuses statusesOf) (*follower, error) {
	cache := render.NewCache(0)
	checkout := &syncer.Checkout{Objects: repo.Repository, Keeper: repo.Repository, Cache: cache}
	config.Commits = checkout
	config.Fetch = func(ctx context.Context, spec api.SourceSpec, maxAge time.Duration) (string, error) {
		return repo.Fetch(ctx, spec.Ref, maxAge)
	}
	config.Receipts = func(ctx context.Context, commit string) ([]syncer.Done, error) {
		if err := adopt(ctx, repo); err != nil {
			return nil, err
		}
		return syncer.DoneBefore(ctx, repo, config.Source, commit)
	}
	f := &follower{name: config.Source, spec: config.Spec, clone: used, syncer: syncer.New(config), repository: repo.Repository}
	f.publisher = syncer.NewPublisher(f.syncer, syncer.PublisherConfig{
		Push: repo.Push, Metrics: c.metrics,
		Adopt: func(ctx context.Context) error {
			err := repo.Adopt(ctx)
			if err == nil {
				f.live.Wake()
			}
			return err
		},
	})
	noter := c.noterConfig(f)
	noter.Prepare = func(ctx context.Context) error { return adopt(ctx, repo) }
	noter.Wrote = f.publisher.Wake
	if statuses.token != "" {
		noter.Statuses = func(tell func(string)) (syncer.Statuses, error) { return c.statuses(config.Spec.URL, statuses, tell) }
		if _, err := noter.Statuses(nil); err != nil { // now, and not when we lead
			return nil, err
		}
	}
	newest := func(ctx context.Context) (string, error) { return repo.Fetch(ctx, config.Spec.Ref, 0) }
	c.finish(f, cache, newest, checkout, noter, syncer.LiveConfig{Adopt: func(ctx context.Context) error { return adopt(ctx, repo) }, Wrote: f.publisher.Wake, Suffix: forge.SkipCI})
	return f, nil
}

// adopt takes over the notes that the forge has. When they and ours have gone
// different ways, ours are written on, and the publisher says so.
func adopt(ctx context.Context, repo *git.Forge) error {
	err := repo.Adopt(ctx)
	if errors.Is(err, git.ErrMoved) {
		return nil
	}
	return err
}

// statusesOf says where the commit statuses of a source go, and what they are called
// by beside the cluster's name.
type statusesOf struct {
	cluster, path string
	forgeConfig
}

// statuses makes the sender of commit statuses for one leadership.
func (c *cluster) statuses(url string, of statusesOf, tell func(problem string)) (syncer.Statuses, error) {
	kind, err := forge.ParseKind(of.kind)
	if err != nil {
		return nil, fmt.Errorf("--forge: %w", err)
	}
	return forge.NewStatuses(forge.StatusConfig{
		Cluster: of.cluster, Path: of.path, URL: url, Kind: kind, API: of.api, TokenFile: of.token,
		Intents: &syncer.Intents{Store: c.store, Fence: c.fence, Now: time.Now},
		Fence:   func(ctx context.Context) error { return syncer.Holds(ctx, c.store, c.fence()) },
		Tell:    tell,
		Log:     c.log.With("component", "forge"),
	})
}

// openWebhook makes the handler of /webhook, which wakes the syncers of whichever
// server leads.
func (c *cluster) openWebhook() error {
	secret := c.cfg.source.forge.secret
	if secret == "" {
		return nil
	}
	c.pokes = newPokes()
	var err error
	c.webhook, err = forge.NewWebhook(forge.WebhookConfig{
		SecretFile: secret,
		Sources: func() []forge.Source {
			var followed []forge.Source
			for _, f := range c.sources.list() {
				if f.spec.URL != "" {
					followed = append(followed, forge.Source{Name: f.name, URL: f.spec.URL, Ref: f.spec.Ref})
				}
			}
			return followed
		},
		Wake: func(source string, _ forge.Event) { c.pokes.add(source) },
		Log:  c.log.With("component", "webhook"),
	})
	return err
}

// poke carries webhooks to the leader until ctx ends.
func (c *cluster) poke(ctx context.Context) error {
	defer c.webhook.Close()
	c.pokes.run(ctx, c.sources, c.store, c.log)
	return nil
}
