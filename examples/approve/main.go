// Approve is a program where people approve calls. A proxy in front authenticates them and sets X-User.
// The API answers under the same address. It needs nats-server -js.
//
//	go run ./examples/approve
package main

import (
	"context"
	"errors"
	"log"
	"net/http"

	"github.com/turnpike-dev/turnpike"
)

// approve approves the call that the person saw.
func approve(d *turnpike.Deployment) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who := turnpike.Principal{Name: r.Header.Get("X-User"), Roles: []turnpike.Role{"approver"}}
		seen := turnpike.Decision{CallID: r.FormValue("call"), Hash: r.FormValue("hash")}
		err := d.As(who).RunByID(r.PathValue("run")).Approve(r.Context(), seen)
		switch {
		case errors.Is(err, turnpike.ErrStale):
			http.Error(w, "Another call waits now: look at the run again, and decide about that call.", http.StatusConflict)
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}
}

// serve answers approvals, and everything else as the API and its page.
func serve(ctx context.Context, d *turnpike.Deployment) error {
	g, err := d.NewGateway(turnpike.GatewayOptions{Auth: d.KeyAuth()})
	if err != nil {
		return err
	}
	go func() { log.Print(g.Run(ctx)) }()
	http.HandleFunc("POST /approve/{run}", approve(d))
	http.Handle("/", g)
	return http.ListenAndServe("localhost:8080", nil)
}

func main() {
	ctx := context.Background()
	d, err := turnpike.Open(ctx, turnpike.Options{})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(serve(ctx, d))
}
