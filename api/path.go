package api

import (
	"strconv"
	"strings"
)

// join adds a field to a path: plain names with a dot, other keys in brackets,
// as Kubernetes writes them.
func join(path, name string) string {
	if strings.ContainsAny(name, "./[] ") || name == "" {
		return path + "[" + name + "]"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

func nth(i int) string { return "[" + strconv.Itoa(i) + "]" }

func atoi(s string) (int, bool) {
	i, err := strconv.Atoi(s)
	return i, err == nil && i >= 0
}

// nearest returns the candidate that a typing mistake most likely meant, or "".
// Only a difference in case, or up to two letters in a word of more than three,
// counts as a mistake.
func nearest(word string, candidates []string) string {
	best, bestAt := "", 4
	for _, c := range candidates {
		d := 0
		if !strings.EqualFold(word, c) {
			if d = distance(strings.ToLower(word), strings.ToLower(c)); d > min(2, len(c)/3) {
				continue
			}
		}
		if d < bestAt {
			best, bestAt = c, d
		}
	}
	return best
}

// distance is the number of letters to add, drop or change to get from a to b,
// two swapped neighbours counting once.
func distance(a, b string) int {
	if len(a)-len(b) > 2 || len(b)-len(a) > 2 || len(a) > 64 {
		return 3
	}
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
