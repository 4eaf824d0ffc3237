package git

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// credentials reads the login and password of a host from a file in the form of
// .netrc. The host may be named with its port. A file without an entry for it
// gives none. Errors never show what the file holds.
func credentials(path string, hosts ...string) (login, password string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", "", fmt.Errorf("read the credentials file: %w", err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return "", "", fmt.Errorf("read the credentials file: %w", err)
	}
	login, password = parseNetrc(string(content), hosts)
	return login, password, nil
}

// parseNetrc returns the first entry for one of the hosts, or else the default.
func parseNetrc(content string, hosts []string) (login, password string) {
	var words []string
	for line := range strings.Lines(content) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			words = append(words, strings.Fields(line)...)
		}
	}
	here, found := false, false
	for i := 0; i < len(words); i++ {
		value := ""
		if i+1 < len(words) {
			value = words[i+1]
		}
		switch words[i] {
		case "machine":
			if found {
				return login, password
			}
			here = slices.Contains(hosts, value)
			found = here
			i++
		case "default":
			if found {
				return login, password
			}
			here, found = true, true
		case "login":
			if here {
				login = value
			}
			i++
		case "password":
			if here {
				password = value
			}
			i++
		case "account", "macdef":
			i++
		}
	}
	return login, password
}
