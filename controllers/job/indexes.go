package job

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// span is the indexes from first to last, both included.
type span struct{ first, last int }

// indexes is a set of completion indexes: spans in order, with a gap between any
// two. The zero value is empty.
type indexes []span

// parseIndexes reads the form of status.completedIndexes, "1,3-5,7", as far as it
// lies below a bound. What is not a number is left out.
func parseIndexes(text string, below int) indexes {
	var spans []span
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(part, "-")
		if !ranged {
			to = from
		}
		first, err := strconv.Atoi(from)
		if err != nil || first < 0 {
			continue
		}
		last, err := strconv.Atoi(to)
		if last = min(last, below-1); err != nil || last < first {
			continue
		}
		spans = append(spans, span{first, last})
	}
	return joined(spans)
}

// joined makes a set of spans in any order.
func joined(spans []span) indexes {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	var out indexes
	for _, s := range spans {
		if n := len(out); n > 0 && s.first <= out[n-1].last+1 {
			out[n-1].last = max(out[n-1].last, s.last)
			continue
		}
		out = append(out, s)
	}
	return out
}

// with is the set and more indexes.
func (ix indexes) with(more ...int) indexes {
	spans := slices.Clone(ix)
	for _, i := range more {
		spans = append(spans, span{i, i})
	}
	return joined(spans)
}

// union is what is in one set or the other.
func (ix indexes) union(other indexes) indexes { return joined(slices.Concat(ix, other)) }

// String is the documented form: three or more in a row are written as the first
// and the last of them.
func (ix indexes) String() string {
	var out []string
	for _, s := range ix {
		out = append(out, strconv.Itoa(s.first))
		switch {
		case s.last == s.first+1:
			out = append(out, strconv.Itoa(s.last))
		case s.last > s.first:
			out[len(out)-1] += "-" + strconv.Itoa(s.last)
		}
	}
	return strings.Join(out, ",")
}

func (ix indexes) total() (n int) {
	for _, s := range ix {
		n += s.last - s.first + 1
	}
	return n
}

func (ix indexes) has(i int) bool {
	_, found := slices.BinarySearchFunc(ix, i, func(s span, i int) int {
		switch {
		case s.last < i:
			return -1
		case s.first > i:
			return 1
		}
		return 0
	})
	return found
}

// common is how many indexes are in both sets.
func (ix indexes) common(other indexes) (n int) {
	for a, b := 0, 0; a < len(ix) && b < len(other); {
		n += max(0, min(ix[a].last, other[b].last)-max(ix[a].first, other[b].first)+1)
		if ix[a].last < other[b].last {
			a++
		} else {
			b++
		}
	}
	return n
}

// gaps goes through the indexes below a bound that are not in the set.
func (ix indexes) gaps(below int) iter.Seq[int] {
	return func(yield func(int) bool) {
		next := 0
		for _, s := range slices.Concat(ix, indexes{{below, below}}) {
			for ; next < min(s.first, below); next++ {
				if !yield(next) {
					return
				}
			}
			next = max(next, s.last+1)
		}
	}
}

// indexed says whether each pod of the Job has an index.
func indexed(job *batchv1.Job) bool {
	return job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion
}

// perIndex says whether each index has a limit of its own.
func perIndex(job *batchv1.Job) bool { return indexed(job) && job.Spec.BackoffLimitPerIndex != nil }

// indexOf is a pod's index; false when it has none that its Job knows.
func indexOf(job *batchv1.Job, p *corev1.Pod) (int, bool) {
	i, err := strconv.Atoi(p.Annotations[batchv1.JobCompletionIndexAnnotation])
	return i, err == nil && i >= 0 && job.Spec.Completions != nil && i < int(*job.Spec.Completions)
}

// failuresOf is how often a pod's index failed before the pod was made: the
// failures that count, and those that the failure policy ignored.
func failuresOf(p *corev1.Pod) (counted, ignored int) {
	read := func(annotation string) int {
		n, err := strconv.ParseInt(p.Annotations[annotation], 10, 32)
		if err != nil || n < 0 {
			return 0
		}
		return int(n)
	}
	return read(batchv1.JobIndexFailureCountAnnotation), read(batchv1.JobIndexIgnoredFailureCountAnnotation)
}
