package cloudlogin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
)

const (
	googleScope = "https://www.googleapis.com/auth/cloud-platform"

	// googleTokens is where tokens come from, whatever a service account's key says: the worker calls no
	// server that a secret names.
	googleTokens = "https://oauth2.googleapis.com/token"
)

// Google returns an access token for calls of Google Vertex AI. The value of the secret is the key of a
// service account in JSON, or WorkerIdentity. The error is a *Error, or that of ctx.
func (l *Logins) Google(ctx context.Context, value string) (string, error) {
	source, err := identity(l, "google", value, func() (oauth2.TokenSource, error) { return l.google(ctx, value) })
	if err != nil {
		return "", err
	}
	token, err := within(ctx, source.Token)
	if err == nil {
		return token.AccessToken, nil
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if denied, ok := errors.AsType[*oauth2.RetrieveError](err); ok && denied.Response != nil && refuses(denied.Response.StatusCode) {
		var why struct {
			Description string `json:"error_description"`
		}
		if _ = json.Unmarshal(denied.Body, &why); why.Description != "" {
			why.Description = ", " + why.Description
		}
		remedy := "check its permissions, and whether the key in the secret still exists"
		if value == WorkerIdentity {
			remedy = "check its permissions, and that it is the identity that the worker must have"
		}
		return "", refused("Google refused the service account (HTTP %d%.200s): %s", denied.Response.StatusCode, why.Description, remedy)
	}
	return "", &Error{Text: "Google issued no access token: retry, and check the status of Google Cloud"}
}

func (l *Logins) google(ctx context.Context, value string) (oauth2.TokenSource, error) {
	// Sources keep the context: it must outlive the call.
	if value == WorkerIdentity {
		found, err := within(ctx, func() (*google.Credentials, error) {
			return google.FindDefaultCredentials(context.Background(), googleScope)
		})
		if err != nil {
			return nil, &Error{Text: fmt.Sprintf("the worker's identity in Google Cloud was not found (%v): give the worker a service account, or set GOOGLE_APPLICATION_CREDENTIALS to a file with its key", err)}
		}
		return oauth2.ReuseTokenSource(nil, found.TokenSource), nil
	}
	account, err := google.JWTConfigFromJSON([]byte(value), googleScope)
	if err != nil || account.Email == "" || len(account.PrivateKey) == 0 {
		return nil, refused("the secret for Google Vertex AI is not valid: set it to the key of a service account in JSON, or to %s", WorkerIdentity)
	}
	account.TokenURL = googleTokens
	return account.TokenSource(context.WithValue(context.Background(), oauth2.HTTPClient, l.client)), nil
}
