package confine

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// access is the permission of a program for a path.
type access string

const (
	readOnly  access = "read"
	readWrite access = "write"
	withheld  access = "withheld"
	temporary access = "temporary" // an empty directory in memory
)

// entry is a path as the program sees it, the path on the host, and the program's access to it.
type entry struct {
	Path, Source string
	Access       access
}

// system has the paths that every program may read. Of /etc it has what libraries look up, but no keys of hosts,
// passwords and the like.
var system = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store",
	"/etc/alternatives", "/etc/ca-certificates", "/etc/ca-certificates.conf", "/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted",
	"/etc/group", "/etc/passwd", "/etc/nsswitch.conf", "/etc/hosts", "/etc/host.conf", "/etc/resolv.conf", "/etc/gai.conf", "/etc/protocols", "/etc/services",
	"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/timezone", "/etc/locale.alias", "/etc/mime.types", "/etc/os-release", "/etc/fonts",
}

// beside are the names of siblings that programs on PATH need from their parent directory: ~/.nvm/…/bin has its library
// next to it, and ~/.pyenv/shims its versions.
var beside = []string{"bin", "shims", "lib", "lib32", "lib64", "libexec", "include", "version", "versions", "installs", "plugins"}

// devices are the devices that a program has.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// view returns the paths that a program sees, parents before children.
func (c *Confinement) view(program string) []entry {
	var all []entry
	add := func(a access, paths ...string) {
		for _, p := range paths {
			if source, err := filepath.EvalSymlinks(p); err == nil {
				all = append(all, entry{p, source, a}, entry{source, source, a})
			}
		}
	}
	add(readOnly, system...)
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		add(readOnly, dir)
		if base := filepath.Base(dir); base == "bin" || base == "shims" {
			for _, name := range beside {
				add(readOnly, filepath.Join(filepath.Dir(dir), name))
			}
		}
	}
	if info, err := os.Stat(program); err == nil && info.Mode().IsRegular() {
		add(readOnly, program)
	}
	add(readOnly, c.cfg.Read...)
	add(readWrite, c.cfg.Write...)
	if c.cfg.Home != "" {
		add(readWrite, c.cfg.Home)
	}
	add(withheld, c.cfg.Withheld...)
	return tidy(all)
}

// strength orders the accesses to one path: the strongest applies, and withheld overrides all others.
var strength = map[access]int{readOnly: 0, readWrite: 1, temporary: 2, withheld: 3}

// tidy sorts entries and removes redundant ones. It never shows the root itself, which would
// expose everything below it.
func tidy(all []entry) []entry {
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(strength[b.Access], strength[a.Access]))
	})
	var kept []entry
	for _, e := range all {
		above, shown := covering(kept, e.Path)
		switch {
		case e.Path == "/" || e.Source == "/", shown && above.Path == e.Path:
		case shown && above.Access == e.Access:
		case shown && above.Access == readWrite && e.Access == readOnly:
		default:
			kept = append(kept, e)
		}
	}
	// A withheld path matters only below a shown one.
	return slices.DeleteFunc(slices.Clone(kept), func(e entry) bool {
		return e.Access == withheld && !slices.ContainsFunc(kept, func(above entry) bool {
			return above.Access != withheld && within(e.Path, above.Path)
		})
	})
}

// covering returns the entry that determines the access to a path.
func covering(entries []entry, path string) (entry, bool) {
	for i := len(entries) - 1; i >= 0; i-- {
		if within(path, entries[i].Path) {
			return entries[i], true
		}
	}
	return entry{}, false
}

// within reports whether a path is root or below it.
func within(path, root string) bool {
	return path == root || strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/")
}
