package app

import (
	"testing"
	"testing/fstest"
)

// A worker's turns reserve an eighth of the memory that its process may use: half for views, a quarter each for answers
// and files. A part that is set does not change the others.
func TestMemoryOfAWorker(t *testing.T) {
	t.Parallel()
	set := func(n int64) *int64 { return &n }
	for name, test := range map[string]struct {
		cfg     WorkerConfig
		machine int64
		want    [4]int64
	}{
		"a machine of 8 GiB":           {machine: 8 << 30, want: [4]int64{1024, 256, 256, 512}},
		"a machine that says nothing":  {machine: 0, want: [4]int64{1024, 256, 256, 512}},
		"a machine of 24 GiB":          {machine: 24 << 30, want: [4]int64{3072, 768, 768, 1536}},
		"a container of 256 MiB":       {machine: 256 << 20, want: [4]int64{64, 16, 16, 32}},
		"a total":                      {cfg: WorkerConfig{MemoryMiB: set(400)}, machine: 8 << 30, want: [4]int64{400, 100, 100, 200}},
		"a total that is tiny":         {cfg: WorkerConfig{MemoryMiB: set(1)}, machine: 8 << 30, want: [4]int64{1, 1, 1, 1}},
		"a part":                       {cfg: WorkerConfig{ViewsMiB: set(5)}, machine: 8 << 30, want: [4]int64{1024, 256, 256, 5}},
		"a part of 0 stays for checks": {cfg: WorkerConfig{AnswersMiB: set(0)}, machine: 8 << 30, want: [4]int64{1024, 0, 256, 512}},
	} {
		total, answers, files, views := test.cfg.memory(test.machine)
		if got := [4]int64{total, answers, files, views}; got != test.want {
			t.Errorf("%s: total, answers, files and views are %v MiB, want %v", name, got, test.want)
		}
	}
}

// The memory of a process is that of the machine, or the smallest limit of the control groups that it is in.
func TestAvailableMemory(t *testing.T) {
	t.Parallel()
	meminfo := "MemTotal:       16777216 kB\nMemFree:        100 kB\n"
	for name, test := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"another system":            {nil, 0},
		"no limit":                  {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a.slice/b\n", "sys/fs/cgroup/a.slice/b/memory.max": "max\n"}, 16 << 30},
		"a limit":                   {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a.slice/b\n", "sys/fs/cgroup/a.slice/b/memory.max": "1073741824\n"}, 1 << 30},
		"a limit of a group around": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a.slice/b\n", "sys/fs/cgroup/a.slice/b/memory.max": "max\n", "sys/fs/cgroup/a.slice/memory.max": "2147483648\n"}, 2 << 30},
		"a container":               {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1073741824\n"}, 1 << 30},
		"a container, version 1":    {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/docker/1\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n"}, 1 << 30},
		"version 1 without a limit": {map[string]string{"proc/meminfo": meminfo, "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 16 << 30},
		"a limit above the machine": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1099511627776\n"}, 16 << 30},
		"lines that are not known":  {map[string]string{"proc/meminfo": "nonsense", "proc/self/cgroup": "nonsense"}, 0},
	} {
		root := fstest.MapFS{}
		for file, text := range test.files {
			root[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := availableMemory(root); got != test.want {
			t.Errorf("%s: %d bytes, want %d", name, got, test.want)
		}
	}
}
