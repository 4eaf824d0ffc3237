package agent

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A Node shows the 50 largest images with 5 names each, always in the same order.
// https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/ (nodeStatusMaxImages)
func TestLargestImages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var found []PresentImage
		for i := range rapid.IntRange(0, 80).Draw(t, "images") {
			image := PresentImage{Size: rapid.Int64Range(0, 20).Draw(t, "size")}
			for n := range rapid.IntRange(0, 8).Draw(t, "names") {
				image.Names = append(image.Names, fmt.Sprintf("i%02d:%d", i, n%6))
			}
			found = append(found, image)
		}
		got := largest(found)
		named, least := 0, int64(1<<40)
		for _, i := range found {
			if len(i.Names) > 0 {
				named++
			}
		}
		if len(got) != min(named, maxImages) {
			t.Fatalf("%d images of %d", len(got), named)
		}
		for i, image := range got {
			if len(image.Names) == 0 || len(image.Names) > maxImageNames || !slices.IsSorted(image.Names) || len(slices.Compact(slices.Clone(image.Names))) != len(image.Names) {
				t.Fatalf("names %q", image.Names)
			}
			if least = min(least, image.SizeBytes); i > 0 && image.SizeBytes > got[i-1].SizeBytes {
				t.Fatal("not the largest first")
			}
		}
		larger := 0
		for _, i := range found {
			if len(i.Names) > 0 && i.Size > least {
				larger++
			}
		}
		if larger > len(got) {
			t.Fatalf("%d are larger than the least of %d that are shown", larger, len(got))
		}
		shuffled := slices.Clone(found)
		slices.Reverse(shuffled)
		if again := largest(shuffled); fmt.Sprint(again) != fmt.Sprint(got) {
			t.Fatalf("in another order: %v and %v", again, got)
		}
	})
}
