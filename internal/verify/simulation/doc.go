// Package simulation runs a whole deployment in one process, faster than real time: gateway, workers, their
// sweepers and loops, unchanged, on a fake clock (testing/synctest), with users who submit work and faults
// drawn from a seed. The environment is simulated: the network, the lives of processes, the models, the tools
// and the people.
//
// Every call of a process to store and bus goes through its process value, which delays it, loses it, loses
// only the answer, or ends the process there: so a crash can strike between any two steps of the protocol. A
// seed gives the same faults at the same moments each time.
package simulation
