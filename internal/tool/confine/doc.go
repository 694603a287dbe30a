// Package confine starts the programs of MCP tools, which agents name and strangers write, in a way
// that protects the starting process and everything that it can reach.
//
//	c, err := confine.New(confine.Config{Network: []string{"npx"}})
//	if err != nil {
//		return err
//	}
//	cmd := exec.Command("npx", "-y", "@modelcontextprotocol/server-everything")
//	p, err := c.Start("npx", cmd)
//	if err != nil {
//		return err // [ErrRefused] where the system cannot confine programs
//	}
//	defer p.Close()
//	err = cmd.Wait()
//
// # Ways
//
// [Namespaces]: a file system of its own, with the paths that [Config] names and nothing else of the
// host's, and its own processes, network and users. Where the system does not let this process make
// namespaces, [Landlock] and a filter of system calls: the files that may be opened, and no sockets.
// Where there is neither, programs are refused, unless [Off] starts them as they are.
//
// # Guarantees
//
// A program can read the system's own files, the installations of programs on PATH, and the paths
// in Config.Read. It can write to a temporary directory that is removed with it, to Config.Home and
// to the paths in Config.Write. It gets no variables but those of its command, HOME and TMPDIR. It
// has no capabilities and cannot get any.
//
// It has no network unless Config.Network names it; then it has that of this process, all of it.
//
// With namespaces nothing that it has started outlives it, and it does not outlive this process. With
// Landlock that holds for what does not evade its process group; the program may send signals to processes
// of the same user before Linux 6.12.
//
// Memory is bounded for all processes of a program together where this process may make cgroups; else for
// each of them, without files in memory. [Report] says which. Processes, with their threads, are 512 at most,
// but for Landlock without cgroups: nothing bounds their number there but what the system sets for the user.
//
// # How it starts
//
// A program's first process is this process's own executable, which confines itself before it starts the
// program. It does so while packages are initialised and never gets to main, so any executable that links
// this package can start programs.
package confine
