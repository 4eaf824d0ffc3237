package forge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// requestTimeout is the longest that one request lasts, answer included.
	requestTimeout = 15 * time.Second
	maxAnswer      = 64 << 10
	userAgent      = "headway" // GitHub refuses requests without one
)

// newClient follows a redirect only where the token may go, which is nowhere but to
// the host that it was sent to, and only one that keeps the method: GitHub answers
// so for a repository that was renamed. Any other redirect is the answer.
func newClient(t http.RoundTripper) *http.Client {
	if t == nil {
		t = http.DefaultTransport
	}
	return &http.Client{Transport: t, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		first, status := via[0].URL, req.Response.StatusCode
		keeps := status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
		if len(via) > 3 || !keeps || req.URL.Scheme != first.Scheme || req.URL.Host != first.Host {
			return http.ErrUseLastResponse
		}
		return nil
	}}
}

// The bodies, as each forge documents them.
type (
	githubStatus struct { // and Gitea's CreateStatusOption
		State       string `json:"state"`
		Description string `json:"description"`
		Context     string `json:"context"`
	}
	gitlabStatus struct {
		State       string `json:"state"`
		Ref         string `json:"ref,omitempty"`
		Name        string `json:"name"`
		Description string `json:"description"`
	}
)

// body is what the forge is sent for an intent.
func (k Kind) body(i Intent) any {
	state := map[State]string{Pending: "pending", Running: "pending", Success: "success", Failure: "failure", Canceled: "error"}
	switch k {
	case GitLab:
		state[Running], state[Failure], state[Canceled] = "running", "failed", "canceled"
		return gitlabStatus{state[i.State], shortRef(i.Ref), i.Context, i.Description}
	case GitHub:
		return githubStatus{state[i.State], truncate(i.Description, maxGitHub), i.Context}
	}
	return githubStatus{state[i.State], i.Description, i.Context}
}

// shortRef is what GitLab calls a ref: the name of the branch or tag.
func shortRef(ref string) string {
	for _, kind := range []string{"refs/heads/", "refs/tags/"} {
		if name, ok := strings.CutPrefix(ref, kind); ok {
			return name
		}
	}
	return ""
}

// alike says whether the forge would show nothing new, so that sending is of no
// use. GitLab takes a description only together with a new state.
func (k Kind) alike(sent, next Intent) bool {
	return k == GitLab && sent.State == next.State && !next.State.final() || k.body(sent) == k.body(next)
}

// request makes the request that posts a status.
func (e endpoint) request(ctx context.Context, i Intent, token string) (*http.Request, error) {
	content, err := json.Marshal(e.kind.body(i))
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.statusURL(i.Commit), bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	switch e.kind {
	case GitHub:
		req.Header.Set("Accept", "application/vnd.github+json")
		req.Header.Set("X-GitHub-Api-Version", "2022-11-28")
		req.Header.Set("Authorization", "Bearer "+token)
	case GitLab:
		req.Header.Set("PRIVATE-TOKEN", token)
	case Gitea:
		req.Header.Set("Authorization", "token "+token)
	}
	return req, nil
}

// post sends a status, once. The error is of the way there; what the forge says is
// the answer.
func post(ctx context.Context, client *http.Client, e endpoint, i Intent, token string) (answer, error) {
	req, err := e.request(ctx, i, token)
	if err != nil {
		return answer{}, err
	}
	res, err := client.Do(req)
	if err != nil {
		return answer{}, bare(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil && res.StatusCode/100 != 2 { // a status that was taken is taken
		return answer{}, err
	}
	return answer{
		kind: e.kind, status: res.StatusCode, header: res.Header,
		message: message(body, token),
	}, nil
}

// bare takes away the method and URL that http wraps around an error: the caller
// says where.
func bare(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		if wrapped.Timeout() && errors.Is(wrapped.Err, context.DeadlineExceeded) {
			return errors.New("no answer within " + requestTimeout.String())
		}
		return wrapped.Err
	}
	return err
}

// message is what a forge says in the body of an error, in a line, without the token.
func message(body []byte, token string) string {
	var said struct {
		Message any    `json:"message"`
		Error   any    `json:"error"` // GitLab, of parameters and scopes
		Detail  string `json:"error_description"`
		Errors  []struct {
			Field   string `json:"field"`
			Message string `json:"message"`
		} `json:"errors"` // GitHub, of fields
	}
	if json.Unmarshal(body, &said) != nil {
		return ""
	}
	var parts []string
	for _, v := range []any{said.Message, said.Error} {
		switch v := v.(type) {
		case nil:
		case string:
			parts = append(parts, v)
		default: // GitLab: {"description": ["is too long"]}
			if raw, err := json.Marshal(v); err == nil {
				parts = append(parts, string(raw))
			}
		}
	}
	if said.Detail != "" {
		parts = append(parts, said.Detail)
	}
	for _, e := range said.Errors {
		parts = append(parts, strings.TrimSpace(e.Field+" "+e.Message))
	}
	text := oneLine(strings.Join(parts, ", "))
	return truncate(strings.ReplaceAll(text, token, "(the token)"), 200) // cut last: half a token is a secret, too
}
