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
// [Namespaces] give a program its own file system, with only the paths that [Config] names, and its
// own processes, network and users. If the system does not let this process create namespaces,
// [Landlock] and a filter of system calls restrict the files that a program may open, and deny
// sockets. If the system has neither, programs are refused, unless [Off] starts them unconfined.
//
// # Guarantees
//
// A program can read the system's own files, the installations of programs on PATH, and the paths
// in Config.Read. It can write to a temporary directory that is removed with it, to Config.Home and
// to the paths in Config.Write. It gets no variables but those of its command, HOME and TMPDIR. It
// has no capabilities and cannot get any.
//
// It has no network unless Config.Network names it; then it has the whole network of this process.
//
// With namespaces no process that a program starts outlives it, and the program does not outlive
// this process. With Landlock that holds only for processes that stay in its process group, and
// before Linux 6.12 the program may send signals to processes of the same user.
//
// If this process may create cgroups, the kernel limits the memory of all processes of a program in
// total, and their processes and threads to 512. Otherwise it limits the memory of each of them, not
// counting files in memory, and with namespaces the processes and threads of a program. This process then
// measures a program every 200 ms, and ends it if it uses more memory in total or has more than 512
// processes. [Report] tells which.
//
// # How it starts
//
// The first process of a program is this process's own executable, which confines itself before it
// starts the program. It does so during package initialization and never reaches main, so any
// executable that links this package can start programs.
package confine
