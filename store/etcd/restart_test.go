package etcd

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A member that is alone must not ask to lead while it still replays its log: raft
// would read every entry since the snapshot, and panic over one that has been cut
// off already: on a busy machine within 60 starts. The copies make every start
// replay the same log.
func TestStartWhileTheLogIsReplayed(t *testing.T) {
	dir := t.TempDir()
	e, err := Start(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for i := range logEntries - 20 { // no snapshot yet, and the log in memory has been cut
		if _, err := e.client.Put(t.Context(), fmt.Sprintf("/k%d", i%7), "v"); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		again := filepath.Join(t.TempDir(), "copy")
		if err := os.CopyFS(again, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		e, err := Start(t.Context(), Config{Dir: again})
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.client.Get(t.Context(), "/k", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || got.Count != 7 {
			t.Errorf("start %d: %v keys, %v", i, got, err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(again); err != nil {
			t.Fatal(err)
		}
	}
}
