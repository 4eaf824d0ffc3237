// Package forge speaks HTTP with the forges that host repositories: it writes
// commit statuses to them, and hears their webhooks. It speaks no git, and knows
// GitHub (also Enterprise), GitLab and Gitea, which Forgejo counts as.
//
// # Commit statuses
//
// Statuses carries the statuses of one context, headway/<cluster>/<path>, to one
// repository:
//
//	Report ── advance (pure) ──► Intents.Put ──► Run: due (pure) ── Fence ──► forge ──► Intents.Done
//
// What the syncer says about a commit becomes an Intent, the status that the forge
// shall show, and is in the store before anything is sent (R4). The loop sends the
// newest intent of each commit. Invariants:
//
//   - Within one attempt at a commit a status only advances: pending, running, one
//     of success, failure or superseded; and from failure to success, when a
//     rollout recovers. A final status of an attempt never becomes pending again.
//   - A report that is older, by (Attempt, Revision), than one that was accepted
//     changes nothing.
//   - Every request is sent right after a check of the fence. An intent that the
//     leader before has left open may still be on its way from there, so a new
//     leader waits for as long as that request can last before it sends for that
//     commit.
//   - A status is idempotent by (commit, context): the forge shows the last one.
//     A kill between sending and Done sends it twice.
//   - No more than keep commits are remembered. A commit older than these gets no
//     status any more.
//
// The token is read from its file for each request, so a new one is used at once.
// No error and no log holds it (R14).
//
// # Webhooks
//
// Webhook is the http.Handler of /webhook and /webhook/<forge>. A delivery proves
// with the shared secret that it comes from the forge before its body is parsed,
// and does nothing but wake the sources that follow the pushed ref. So a replay is
// harmless, and a delivery that never comes costs one period of polling.
//
// # Example
//
//	s, err := forge.NewStatuses(forge.StatusConfig{Cluster: "main", URL: url, TokenFile: file, Intents: in, Fence: check, Log: log})
//	go s.Run(ctx)                                     // on the leader
//	err = s.Report(ctx, forge.Report{Commit: c, Attempt: a, Revision: r, Phase: forge.Applying})
//
//	h, err := forge.NewWebhook(forge.WebhookConfig{SecretFile: file, Sources: sources, Wake: wake, Log: log})
//	http.Handle("/webhook/", h)                       // on every server
package forge
