package main

import (
	"os"
	"strings"
	"testing"
)

func TestClusterKeepsItsName(t *testing.T) {
	prod, plain, old, damaged := dataDir(t.TempDir()), dataDir(t.TempDir()), dataDir(t.TempDir()), dataDir(t.TempDir())
	if err := os.WriteFile(old.kubeconfig(), nil, 0o600); err != nil { // of a release without names
		t.Fatal(err)
	}
	if err := os.WriteFile(damaged.name(), []byte("a/../b\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	failed := dataDir(t.TempDir())
	for _, asked := range []string{"main", "prod"} { // the first start failed after this
		if name, err := failed.clusterName(asked); err != nil || name != asked {
			t.Errorf("asked for %q: %q, %v", asked, name, err)
		}
	}
	for i, c := range []struct {
		dir         dataDir
		asked, want string // want: the name, or what the error says
		refused     bool
	}{
		{prod, "Prod", "lowercase RFC 1123 label", true},
		{prod, "a.b", "must not contain dots", true},
		{prod, "a/b", "lowercase RFC 1123 label", true},
		{prod, strings.Repeat("a", 64), "no more than 63", true},
		{prod, "prod", "prod", false},
		{prod, "", "prod", false},
		{prod, "prod", "prod", false},
		{prod, "main", string(prod) + " is the data dir of the cluster prod", true},
		{plain, "", "main", false},
		{plain, "prod", "the cluster main", true},
		{old, "prod", "the cluster main", true},
		{old, "", "main", false},
		{damaged, "", damaged.name() + " holds", true},
	} {
		name, err := c.dir.clusterName(c.asked)
		if err == nil {
			err = c.dir.keepName(name)
		}
		switch {
		case c.refused && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%d: asked for %q: %q, %v", i, c.asked, name, err)
		case !c.refused && (err != nil || name != c.want):
			t.Errorf("%d: asked for %q: %q, %v", i, c.asked, name, err)
		}
	}
}
