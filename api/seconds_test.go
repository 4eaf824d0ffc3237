package api

import (
	"math"
	"testing"
	"time"
)

func TestSeconds(t *testing.T) {
	for n, want := range map[int64]time.Duration{
		0: 0, 30: 30 * time.Second, -1: -time.Second, math.MaxInt64: LongestTime, 9223372036: LongestTime, 9223372037: LongestTime, math.MinInt64: -LongestTime,
	} {
		if got := Seconds(n); got != want {
			t.Errorf("%d seconds are %s, want %s", n, got, want)
		}
	}
	if LongestTime+LongestTime < LongestTime {
		t.Error("two of the longest have no sum")
	}
}
