package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// tally is what hammer has seen, served as JSON.
type tally struct {
	mu       sync.Mutex
	OK       int            `json:"ok"`
	Failed   int            `json:"failed"`
	Failures []string       `json:"failures,omitempty"` // the first ones
	Answers  map[string]int `json:"answers"`
}

// hammer asks a URL from four workers without end: two over one connection each,
// two over a new one for every request. It never tries a request again.
func hammer(ctx context.Context, url string) error {
	t := &tally{Answers: map[string]int{}}
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if err := json.NewEncoder(w).Encode(t); err != nil {
			fmt.Println("tally not sent:", err)
		}
	})
	for i := range 4 {
		client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext, DisableKeepAlives: i%2 == 1, MaxIdleConnsPerHost: 1,
		}}
		go func() {
			for ctx.Err() == nil {
				t.note(get(client, url))
				time.Sleep(time.Millisecond)
			}
		}()
	}
	return serve(ctx)
}

func (t *tally) note(answer string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.OK++
		t.Answers[answer]++
		return
	}
	t.Failed++
	if len(t.Failures) < 20 {
		t.Failures = append(t.Failures, time.Now().Format(time.StampMilli)+" "+err.Error())
	}
}

// get returns what a URL answers, of at most 4 KiB.
func get(client *http.Client, url string) (string, error) {
	resp, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s: %s", resp.Status, text)
	}
	return string(text), err
}
