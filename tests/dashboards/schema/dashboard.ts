// A dashboard for Grafana as strict types: those that Grafana publishes, with the options of each kind of panel, the
// query for Prometheus in the places where Grafana's own types allow anything.
// `python -m tests.dashboards.schema.generate` makes dashboard.schema.json of it.
import type * as raw from "@grafana/schema/dist/types/raw/dashboard/x/dashboard_types.gen.d.ts";
import type * as heatmap from "@grafana/schema/dist/types/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen.d.ts";
import type * as stat from "@grafana/schema/dist/types/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen.d.ts";
import type * as table from "@grafana/schema/dist/types/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen.d.ts";
import type * as timeseries from "@grafana/schema/dist/types/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen.d.ts";
import type { Prometheus } from "./prometheus/package/dist/types/dataquery";

// Grafana fills in options that are absent.
type Options<T> = Partial<T>;

type Query = Omit<Prometheus, "datasource" | "scopes" | "adhocFilters"> & {
  datasource: raw.DataSourceRef;
  interval?: string; // the shortest step
};

// DataLink of @grafana/data; the published type of a field has `unknown` in its place.
type Link = { title: string; url: string; targetBlank?: boolean };

type Field<Custom> = Omit<raw.FieldConfig, "custom" | "links" | "actions"> & { custom?: Options<Custom>; links?: Link[] };

type Matcher =
  | { id: "byName" | "byRegexp" | "byFrameRefID"; options: string }
  | { id: "byType"; options: "number" | "string" | "time" | "boolean" };

type FieldSource<Custom> = {
  defaults: Field<Custom>;
  overrides: { matcher: Matcher; properties: { id: string; value: unknown }[] }[];
};

type Transformation =
  | { id: "merge"; options: Record<string, never> }
  | {
      id: "organize";
      options: { excludeByName: Record<string, boolean>; indexByName: Record<string, number>; renameByName: Record<string, string> };
    };

type Kind<Type extends string, PanelOptions, Custom> = Omit<
  raw.Panel, "type" | "options" | "fieldConfig" | "targets" | "transformations" | "datasource" | "links" | "libraryPanel"
> & {
  type: Type;
  title: string;
  description: string;
  gridPos: raw.GridPos;
  datasource: raw.DataSourceRef;
  targets: Query[];
  options: Options<PanelOptions>;
  fieldConfig?: FieldSource<Custom>;
  transformations?: Transformation[];
};

export type Stat = Kind<"stat", stat.Options, {}>;
export type TimeSeries = Kind<"timeseries", timeseries.Options, timeseries.FieldConfig>;
export type Table = Kind<"table", table.Options, table.FieldConfig>;
export type Heatmap = Kind<"heatmap", heatmap.Options, heatmap.FieldConfig>;
export type Row = Omit<raw.RowPanel, "panels"> & { panels: never[] };
export type Panel = Stat | TimeSeries | Table | Heatmap | Row;

// The plugin for Prometheus reads the two formats (PrometheusAnnotationSupport in its annotations.ts).
type Annotation = Omit<raw.AnnotationQuery, "target"> & { target: Query; titleFormat: string; textFormat: string };

// Grafana writes `definition` for its list of variables.
type Variable = Omit<raw.VariableModel, "query"> & { query: string; definition?: string };

export type Dashboard = Omit<raw.Dashboard, "panels" | "annotations" | "templating" | "snapshot"> & {
  uid: string;
  title: string;
  panels: Panel[];
  annotations: { list: Annotation[] };
  templating: { list: Variable[] };
};
