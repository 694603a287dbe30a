package api

// Role is a permission of a principal in a tenant. Each role includes RoleViewer, and none of the others.
type Role string

// The roles.
const (
	RoleViewer    Role = "viewer"    // reads
	RoleSubmitter Role = "submitter" // submits runs, sends messages and results, cancels its own runs
	RoleApprover  Role = "approver"  // decides approvals, answers questions
	RoleAuthor    Role = "author"    // defines agents, hooks, triggers and schedules
	RoleOperator  Role = "operator"  // cancels and deletes any run, replays dead letters
	RoleAdmin     Role = "admin"     // manages keys and tenants, reads the audit
	RoleIssuer    Role = "issuer"    // issues short-lived tokens to the users of a program
)

// Principal is a person or a service with its roles in one tenant.
type Principal struct {
	// Name identifies the principal in logs, in the audit and where a tenant requires four eyes. Use the name that the
	// principal has elsewhere, such as oidc:SUBJECT. Required.
	Name string

	// Tenant is the tenant of the roles, or "*" for all tenants. Default: the tenant of the deployment's options.
	Tenant string

	// Roles are one or more of the roles above. With another one, requests of the principal fail with ErrForbidden.
	Roles []Role
}
