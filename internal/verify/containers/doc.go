// Package containers tests a deployment of containers, from the images that deployments builds: three NATS
// servers, Redis, two gateways and three workers on their own network, with active users. It takes containers
// off the network, restarts each in turn, and checks that no run failed, was lost or waited longer than the
// lease, and that nothing was done twice. It has the build tag containers, since it needs a Docker engine and
// the images: `make containers` has both.
package containers
