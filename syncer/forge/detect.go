package forge

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// probe is one question that tells a kind of forge. Questions are asked without
// the token: which host gets it is decided only by the answers.
type probe struct {
	kind Kind
	path string
	yes  func(status int, h http.Header, body []byte) bool
}

// probes ask for what each forge answers to anybody, even one that lets nobody in
// without signing in.
func probes() []probe {
	return []probe{
		// Gitea and Forgejo give their version; one that wants a sign-in refuses in
		// words of its own.
		{Gitea, "/api/v1/version", func(status int, _ http.Header, body []byte) bool {
			var answer struct {
				Version string `json:"version"`
				Message string `json:"message"`
			}
			return json.Unmarshal(body, &answer) == nil &&
				(status == http.StatusOK && answer.Version != "" ||
					status == http.StatusForbidden && strings.HasPrefix(answer.Message, "Only signed in user"))
		}},
		// GitLab gives its version only to a user, and has a header of its own.
		{GitLab, "/api/v4/version", func(status int, h http.Header, body []byte) bool {
			var answer struct {
				Message string `json:"message"`
			}
			return h.Get("X-Gitlab-Meta") != "" ||
				status == http.StatusUnauthorized && json.Unmarshal(body, &answer) == nil && answer.Message == "401 Unauthorized"
		}},
		// GitHub names itself in the headers of every answer of its API.
		{GitHub, "/api/v3/meta", func(_ int, h http.Header, _ []byte) bool {
			return h.Get("X-GitHub-Request-Id") != "" || h.Get("X-GitHub-Enterprise-Version") != ""
		}},
	}
}

// unknownForge says that a host answers, but not as a forge that we know.
type unknownForge struct{ site string }

func (e unknownForge) Error() string {
	return fmt.Sprintf("%s does not say which forge it is: say it with --forge github, gitlab or gitea (also for Forgejo)", e.site)
}

// detect asks the site which forge it is: at most three GET requests, without the
// token, of what anybody may read. An error of unknownForge is final; any other
// means that the site could not be asked.
func detect(ctx context.Context, client *http.Client, site string) (Kind, error) {
	for _, p := range probes() {
		status, header, body, err := get(ctx, client, site+p.path)
		if err != nil {
			return "", fmt.Errorf("ask %s which forge it is: %w", site, err)
		}
		if p.yes(status, header, body) {
			return p.kind, nil
		}
		if status >= 500 || status == http.StatusTooManyRequests {
			return "", fmt.Errorf("ask %s which forge it is: %s answers with status %d", site, p.path, status)
		}
	}
	return "", unknownForge{site}
}

func get(ctx context.Context, client *http.Client, address string) (int, http.Header, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Accept", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, nil, bare(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return 0, nil, nil, err
	}
	return res.StatusCode, res.Header, body, nil
}
