// Compares the types of src/api/types.ts with those made of the OpenAPI document: each answer of the
// gateway must be what the page reads. `make page-types` checks it; nothing imports it.
import type { components } from "../clients/typescript/src/api";
import type * as page from "./src/api/types";

type Schemas = components["schemas"];

// Wide is T as far as both say the same: the document leaves the values of most words open, does not
// list the fields that are always there, and writes JSON of any form as an object without fields.
type Wide<T> = unknown extends T ? any : T extends string ? string : T extends (infer U)[] ? Wide<U>[] : T extends object ? (string extends keyof T ? any : { [K in keyof T]-?: Wide<T[K]> }) : T;

// Differs has the fields that the page reads and the document lacks or gives another type.
type Differs<Answer, Read> = { [K in keyof Read]-?: K extends keyof Answer ? ([Wide<Required<Answer>[K]>] extends [Wide<Required<Read>[K]>] ? never : K) : K }[keyof Read];

// Known are times that the gateway always sets, and what only other pages of a list have.
// agrees takes null if there are none but Known ones; else the compiler names them.
const agrees = <Answer, Read, Known extends keyof Read = never>(_: [Exclude<Differs<Answer, Read>, Known>] extends [never] ? null : Exclude<Differs<Answer, Read>, Known>): void => {};

agrees<Schemas["Usage"], page.Usage>(null);
agrees<Schemas["Schedule"], page.Schedule>(null);
agrees<Schemas["Wait"], page.Waiting>(null);
agrees<Schemas["Run"], page.Run>(null);
agrees<Schemas["Part"], page.Part>(null);
agrees<Schemas["Image"], page.Image>(null);
agrees<Schemas["EventMessage"], page.Message>(null);
agrees<Schemas["Event"], page.Event, "at">(null);
agrees<Schemas["Readiness"], page.Readiness>(null);
agrees<Schemas["Session"], page.Session>(null);
agrees<Schemas["Identity"], page.Identity>(null);
agrees<Schemas["SavedAgent"], page.Agent, "created_at">(null);
agrees<Schemas["AgentDraft"], page.AgentDraft>(null);
agrees<Schemas["CanceledRuns"], page.Canceled>(null);
agrees<Schemas["AgentVersion"], page.AgentVersion>(null);
agrees<Schemas["DeadLetter"], page.DeadLetter, "at">(null);
agrees<Schemas["PendingEvent"], page.PendingEvent>(null);
agrees<Schemas["Worker"], page.Worker>(null);
agrees<Schemas["Queue"], page.Queue>(null);
agrees<Schemas["BatchSummary"], page.BatchSummary>(null);
agrees<Schemas["Batch"], page.Batch, "examined" | "complete">(null);
agrees<Schemas["Tenant"], page.Tenant>(null);
agrees<Schemas["APIKey"], page.APIKey, "created_at">(null);
agrees<Schemas["AuditEntry"], page.AuditEntry, "at">(null);
agrees<Schemas["TriggerSettings"], page.TriggerSettings>(null);
agrees<Schemas["Trigger"], page.Trigger>(null);
agrees<Schemas["EvaluationVersion"], page.EvaluationVersion>(null);
agrees<Schemas["EvaluationDifference"], page.EvaluationDifference>(null);
agrees<Schemas["EvaluationResult"], page.EvaluationResult>(null);
agrees<Schemas["EvaluationSummary"], page.EvaluationSummary>(null);
agrees<Schemas["Evaluation"], page.Evaluation>(null);
agrees<Schemas["MemoryFile"], page.MemoryFile>(null);
