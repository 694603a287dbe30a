// Package containers tests a deployment of containers, of the images that
// deployments builds: three NATS servers, Redis, two gateways and three workers on a
// network of their own, with users at work. It takes containers off the network,
// restarts every one in turn, and checks that no run failed, was lost or had
// to wait for longer than the lease, and that nothing was done twice. It has the build tag
// containers, since it needs a Docker engine and the images: `make containers` has both.
package containers
