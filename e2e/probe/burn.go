package main

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// burner keeps a part of one CPU busy: as many percent as /burn?percent= asked for
// last.
type burner struct {
	percent atomic.Int64
	start   sync.Once
}

func (b *burner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.URL.Query().Get("percent"), 10, 64)
	if err != nil || n < 0 || n > 100 {
		http.Error(w, "percent must be 0 to 100", http.StatusBadRequest)
		return
	}
	b.percent.Store(n)
	b.start.Do(func() { go b.burn() })
	fmt.Fprint(w, "burning")
}

func (b *burner) burn() {
	const slice = 100 * time.Millisecond
	for {
		busy := slice * time.Duration(b.percent.Load()) / 100
		for began := time.Now(); time.Since(began) < busy; {
		}
		time.Sleep(slice - busy)
	}
}
