package render

import (
	"bytes"
	"fmt"

	"headway.dev/headway/api"
)

// foreign says what a file is that means something only to another tool; "" when
// it is nothing like that.
func foreign(data []byte) string {
	switch {
	case bytes.HasPrefix(data, []byte("\x00GITCRYPT")):
		return "the file is encrypted with git-crypt, which this version of Headway cannot read"
	case bytes.HasPrefix(data, []byte("version https://git-lfs.github.com/spec/")):
		return "the file is kept in Git LFS, which this version of Headway does not fetch: commit the file itself"
	case sops(data):
		return "the file is encrypted with SOPS, which this version of Headway cannot read"
	}
	return ""
}

// sops says whether a file carries the marks that SOPS adds to what it encrypts:
// a block in YAML, JSON and INI, keys of their own in a list of variables.
func sops(data []byte) bool {
	if !bytes.Contains(data, []byte("ENC[AES256_GCM,")) {
		return false
	}
	for _, mark := range []string{"sops:", "sops_mac=", "sops_version=", "[sops]"} {
		if bytes.HasPrefix(data, []byte(mark)) || bytes.Contains(data, []byte("\n"+mark)) {
			return true
		}
	}
	return bytes.Contains(data, []byte(`"sops":`))
}

func tooLarge(p string, size int) api.Problem {
	return api.Problem{Path: p, Reason: fmt.Sprintf("the file has %d bytes; at most %d can be read: split it", size, api.MaxFileBytes)}
}
