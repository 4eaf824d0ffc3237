package api

import (
	"strings"
	"testing"
)

// An identity that must never run twice at once is not accepted unasked before there
// is a controller that keeps that promise.
func TestR10_StatefulSetIsRefusedByName(t *testing.T) {
	manifests, problems := DecodeFile("db.yaml", []byte("apiVersion: apps/v1\nkind: StatefulSet\nmetadata:\n  name: db\n"), DecodeOptions{DefaultNamespace: "default"})
	if len(manifests) != 1 || len(problems) != 0 {
		t.Fatalf("%d manifests, problems: %v", len(manifests), problems)
	}
	problems, _ = JudgeStored([]*Manifest{&manifests[0]}, nil, nil, ConfigFile)
	if len(problems) != 1 || problems[0].Line != 2 || !strings.Contains(problems[0].Reason, "StatefulSet") {
		t.Fatalf("problems: %v", problems)
	}
}
