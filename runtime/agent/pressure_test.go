package agent

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestParseThresholds(t *testing.T) {
	got, err := ParseThresholds(DefaultEvictionHard, "memory.available<1.5Gi", "memory.available=1m30s")
	if err != nil {
		t.Fatal(err)
	}
	want := []Threshold{
		{Signal: MemoryAvailable, Quantity: 100 << 20}, {Signal: DiskAvailable, Percent: 10}, {Signal: DiskInodes, Percent: 5},
		{Signal: ImageAvailable, Percent: 15}, {Signal: ImageInodes, Percent: 5},
		{Signal: MemoryAvailable, Quantity: 3 << 29, Grace: 90 * time.Second, Soft: true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if none, err := ParseThresholds("", "", ""); err != nil || len(none) != 0 {
		t.Errorf("%v %v", none, err)
	}
	for _, c := range []struct{ hard, soft, grace, says string }{
		{"memory.available", "", "", "name<value"},
		{"memory.available<", "", "", "name<value"},
		{"memory.free<1Mi", "", "", "unknown eviction signal memory.free"},
		{"memory.available<1Mi,memory.available<2Mi", "", "", "twice"},
		{"memory.available<-1", "", "", "give a quantity"},
		{"memory.available<100%", "", "", "less than 100%"},
		{"memory.available<NaN%", "", "", "less than 100%"},
		{"", "memory.available<1Mi", "", "no grace period"},
		{"", "memory.available<1Mi", "memory.available=soon", "give a duration"},
		{"", "", "memory.available=1m", "no soft threshold"},
	} {
		if _, err := ParseThresholds(c.hard, c.soft, c.grace); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q %q %q: %v, want %q", c.hard, c.soft, c.grace, err, c.says)
		}
	}
}

func TestParseReserved(t *testing.T) {
	got, err := ParseReserved(map[string]string{"cpu": "500m", "ephemeral-storage": "1Gi"})
	if err != nil || len(got) != 2 || got.Cpu().MilliValue() != 500 || got.StorageEphemeral().Value() != 1<<30 {
		t.Errorf("%v %v", got, err)
	}
	for _, bad := range []map[string]string{{"pods": "3"}, {"cpu": "much"}, {"memory": "-1"}} {
		if _, err := ParseReserved(bad); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}

// What pods may have is what the machine has, without what is reserved, what hard
// thresholds keep free, and, of the memory, the huge pages.
func TestAllocatable(t *testing.T) {
	capacity := corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "ephemeral-storage": resource.MustParse("100Gi"),
		"hugepages-2Mi": resource.MustParse("1Gi"), "pods": resource.MustParse("250")}
	thresholds, err := ParseThresholds(DefaultEvictionHard, "memory.available<2Gi", "memory.available=1m")
	if err != nil {
		t.Fatal(err)
	}
	got, err := allocatableOf(FactsConfig{Reserved: corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("924Mi")}, Thresholds: thresholds}, capacity)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[corev1.ResourceName]string{"cpu": "3500m", "memory": "6Gi", "ephemeral-storage": "90Gi", "hugepages-2Mi": "1Gi", "pods": "250"} {
		if q := got[name]; q.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("%s is %s, want %s", name, q.String(), want)
		}
	}
	if _, err := allocatableOf(FactsConfig{Reserved: corev1.ResourceList{"memory": resource.MustParse("9Gi")}}, capacity); err == nil || !strings.Contains(err.Error(), "--system-reserved") {
		t.Errorf("more than there is: %v", err)
	}
}

func TestStrain(t *testing.T) {
	hard := Threshold{Signal: MemoryAvailable, Quantity: 100}
	soft := Threshold{Signal: DiskAvailable, Percent: 10, Grace: time.Minute, Soft: true}
	inodes := Threshold{Signal: DiskInodes, Percent: 5}
	all := []Threshold{inodes, soft, hard}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var s strain
	look := func(after time.Duration, h Host) ([]Threshold, []corev1.NodeConditionType) {
		now = now.Add(after)
		var due []Threshold
		var conditions []corev1.NodeConditionType
		s, due, conditions = s.look(h, all, now)
		return due, conditions
	}
	check := func(name string, due []Threshold, conditions []corev1.NodeConditionType, wantDue []Threshold, wantConditions ...corev1.NodeConditionType) {
		t.Helper()
		if !reflect.DeepEqual(due, wantDue) || !reflect.DeepEqual(conditions, wantConditions) {
			t.Errorf("%s: due %v, conditions %v", name, due, conditions)
		}
	}
	calm := Host{MemoryAvailable: {100, 1000}, DiskAvailable: {100, 1000}}
	due, conditions := look(0, calm)
	check("at the thresholds", due, conditions, nil)
	full := Host{MemoryAvailable: {100, 1000}, DiskAvailable: {99, 1000}}
	due, conditions = look(time.Second, full)
	check("a soft one, at first", due, conditions, nil, corev1.NodeDiskPressure)
	due, conditions = look(59*time.Second, full)
	check("a soft one, a moment early", due, conditions, nil, corev1.NodeDiskPressure)
	due, conditions = look(time.Second, full)
	check("a soft one, in time", due, conditions, []Threshold{soft}, corev1.NodeDiskPressure)
	due, conditions = look(time.Second, Host{MemoryAvailable: {99, 1000}, DiskAvailable: {99, 1000}, DiskInodes: {4, 100}})
	check("memory first", due, conditions, []Threshold{hard, soft, inodes}, corev1.NodeMemoryPressure, corev1.NodeDiskPressure)
	due, conditions = look(time.Second, calm)
	check("over, and shown still", due, conditions, nil, corev1.NodeMemoryPressure, corev1.NodeDiskPressure)
	due, conditions = look(time.Second, full)
	check("the grace begins anew", due, conditions, nil, corev1.NodeMemoryPressure, corev1.NodeDiskPressure)
	due, conditions = look(pressureStays-2*time.Second, calm)
	check("memory was low two looks before", due, conditions, nil, corev1.NodeDiskPressure)
	due, conditions = look(2*time.Second, calm)
	check("over", due, conditions, nil)
}

func TestRank(t *testing.T) {
	made := func(name string, priority int32, request string, uses int64) footprint {
		p := demanding(map[corev1.ResourceName]string{"memory": request, "ephemeral-storage": request})
		p.ObjectMeta = metav1.ObjectMeta{Name: name, UID: types.UID(name)}
		p.Spec.Priority = &priority
		return footprint{pod: p, volumes: Room{Bytes: uses - 1, Inodes: 1}, containers: []use{{name: "main", memory: uses, written: Room{Bytes: 1, Inodes: uses}, processes: uses}}}
	}
	pods := []footprint{
		made("within", -5, "100", 100), made("over, urgent", 10, "100", 900), made("over, more", 0, "100", 300), made("over", 0, "200", 350),
		made("within, more", -5, "10", 10),
	}
	for s, want := range map[Signal]string{
		MemoryAvailable: "over, more|over|over, urgent|within|within, more",
		DiskAvailable:   "over, more|over|over, urgent|within|within, more",
		DiskInodes:      "within|within, more|over|over, more|over, urgent", // nobody requests any
		PIDAvailable:    "within|within, more|over|over, more|over, urgent",
	} {
		var got []string
		for _, f := range rank(pods, s) {
			got = append(got, f.pod.Name)
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%s: %q", s, got)
		}
	}
	v := evictionFor(pods[2], Threshold{Signal: MemoryAvailable, Quantity: 100 << 20}, Level{Free: 5 << 20, All: 1 << 30})
	want := "The node was low on resource: memory. Threshold quantity: 100Mi, available: 5Mi. Container main was using 300, request is 100, has larger consumption of memory. "
	if v.Message != want || v.Reason != "Evicted" || !v.Hasty || !v.Disrupts {
		t.Errorf("%+v", v)
	}
}

// The limits are held in Kubernetes' order and told in its words.
func TestExceeds(t *testing.T) {
	limits := func(list ...string) *corev1.Pod {
		p := &corev1.Pod{}
		for i, text := range list {
			c := corev1.Container{Name: string(rune('a' + i)), Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{}}}
			if text != "" {
				c.Resources.Limits[corev1.ResourceEphemeralStorage] = resource.MustParse(text)
			}
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
		size := resource.MustParse("1Mi")
		p.Spec.Volumes = []corev1.Volume{
			{Name: "sized", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}},
			{Name: "plain", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}
		return p
	}
	wrote := func(amounts ...int64) (out []Written) {
		for i, n := range amounts {
			out = append(out, Written{Container: string(rune('a' + i)), Room: Room{Bytes: n}})
		}
		return out
	}
	const mib = 1 << 20
	for _, c := range []struct {
		name    string
		pod     *corev1.Pod
		volumes map[string]int64
		written []Written
		want    string
	}{
		{"within", limits("2Mi", "2Mi"), map[string]int64{"sized": mib, "plain": mib}, wrote(mib, mib), ""},
		{"no limit", limits("", ""), map[string]int64{"plain": 1 << 40}, wrote(1<<40, 0), ""},
		{"an emptyDir", limits("2Mi"), map[string]int64{"sized": mib + 1}, nil, `Usage of EmptyDir volume "sized" exceeds the limit "1Mi". `},
		{"together", limits("2Mi", "2Mi"), map[string]int64{"plain": mib}, wrote(2*mib, mib+1), "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. "},
		{"one without a limit counts", limits("2Mi", ""), nil, wrote(mib, mib+1), "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "},
		{"a container", limits("1Mi", "3Mi"), nil, wrote(mib+1, 0), `Container a exceeded its local ephemeral storage limit "1Mi". `},
		{"nested too deep", limits("1Mi"), map[string]int64{"plain": 1<<63 - 1}, wrote(mib), "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "},
	} {
		got := ""
		if v := exceeds(c.pod, c.volumes, c.written); v != nil {
			if got = v.Message; v.Reason != "Evicted" || !v.Hasty || v.Disrupts {
				t.Errorf("%s: %+v", c.name, v)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Images are not removed for a disk that they are not on.
func TestImagesHelp(t *testing.T) {
	one := Host{DiskAvailable: {All: 100, Free: 1}, ImageAvailable: {All: 100, Free: 2}} // read at two moments
	two := Host{DiskAvailable: {All: 100, Free: 1}, ImageAvailable: {All: 500, Free: 300}}
	for _, c := range []struct {
		host   Host
		signal Signal
		want   bool
	}{
		{one, DiskAvailable, true}, {one, DiskInodes, true}, {Host{}, DiskAvailable, true}, {one, MemoryAvailable, false}, {one, PIDAvailable, false},
		{two, DiskAvailable, false}, {two, DiskInodes, false}, {two, ImageAvailable, true}, {two, ImageInodes, true},
	} {
		if got := c.host.imagesHelp(c.signal); got != c.want {
			t.Errorf("%s of %v: %v", c.signal, c.host, got)
		}
	}
}
