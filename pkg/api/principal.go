package api

// Role is a permission of a principal in a tenant. Each role includes RoleViewer, and no other.
type Role string

// The roles.
const (
	RoleViewer    Role = "viewer"    // reads
	RoleSubmitter Role = "submitter" // submits runs, sends messages, cancels its own runs
	RoleApprover  Role = "approver"  // decides approvals
	RoleAuthor    Role = "author"    // defines agents
	RoleOperator  Role = "operator"  // cancels and deletes any run, replays dead letters
	RoleAdmin     Role = "admin"     // manages keys and tenants, reads the audit
	RoleIssuer    Role = "issuer"    // issues short-lived tokens to the users of a program
)

// Principal is a person or a service with its roles in one tenant.
type Principal struct {
	// Name identifies the principal in logs, in the audit and where a tenant requires four eyes.
	// Use the name that the principal has elsewhere, such as oidc:SUBJECT.
	Name string

	// Tenant is the tenant of the roles. Default: that of the deployment.
	Tenant string

	Roles []Role
}
