"""A dashboard of kohort's own families for Grafana, and six alert rules for Prometheus.

Both are JSON, which Prometheus takes for the YAML of its rule files. `kohort metrics --print` writes them.
Source: Grafana's JSON model of dashboards; Prometheus' alerting rules.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class Panel(NamedTuple):
    """One graph: its title, its unit in Grafana's words, and its expressions with the legend of each."""

    title: str
    unit: str
    expressions: tuple[tuple[str, str], ...]


_GROUPS: Final = '{group=~"$group"}'
PANELS: Final = (
    Panel(
        "Lag",
        "short",
        (('sum by (consumergroup) (kafka_consumergroup_lag_sum{consumergroup=~"$group"})', "{{consumergroup}}"),),
    ),
    Panel("Lag in seconds", "s", ((f"max by (group) (kohort_group_lag_seconds{_GROUPS})", "{{group}}"),)),
    Panel(
        "Rebalances an hour by cause",
        "short",
        ((f"sum by (group, cause) (increase(kohort_group_rebalances_total{_GROUPS}[1h]))", "{{group}}: {{cause}}"),),
    ),
    Panel(
        "Time of a rebalance by phase, 95 %",
        "s",
        (
            (
                "histogram_quantile(0.95, sum by (le, phase) (rate(kohort_group_rebalance_seconds_bucket[10m])))",
                "{{phase}}",
            ),
        ),
    ),
    Panel(
        "Partitions without a reader, 95 % and mean",
        "s",
        (
            ("histogram_quantile(0.95, sum by (le) (rate(kohort_partition_unread_seconds_bucket[10m])))", "95 %"),
            (
                "rate(kohort_partition_unread_seconds_sum[10m]) / rate(kohort_partition_unread_seconds_count[10m])",
                "mean",
            ),
        ),
    ),
    Panel(
        "Members: last heard, and stuck",
        "s",
        (
            (f"max by (group, client_id) (kohort_member_last_heard_seconds{_GROUPS})", "{{group}}: {{client_id}}"),
            (f"sum by (group) (kohort_member_stuck{_GROUPS})", "{{group}}: stuck members"),
        ),
    ),
    Panel("Moves a second", "short", ((f"sum by (group) (rate(kohort_group_moves_total{_GROUPS}[5m]))", "{{group}}"),)),
    Panel(
        "Broker: sync to the disk, 99 %, and its loop's longest turn",
        "s",
        (
            ("histogram_quantile(0.99, sum by (le) (rate(kohort_broker_sync_seconds_bucket[5m])))", "sync"),
            ("kohort_broker_loop_longest_turn_seconds", "turn"),
        ),
    ),
    Panel(
        "Broker: connections, and limits reached a minute",
        "short",
        (
            ("kohort_broker_connections", "connections"),
            ("sum by (limit) (rate(kohort_broker_limit_reached_total[5m])) * 60", "{{limit}}"),
        ),
    ),
)


class Alert(NamedTuple):
    """One rule: its name, its expression, for how long that has to hold, and its sentence."""

    name: str
    expression: str
    lasting: str
    sentence: str


ALERTS: Final = (
    Alert(
        "KohortRebalanceStorm",
        "sum by (group) (increase(kohort_group_rebalances_total[10m])) > 6",
        "2m",
        "{{ $labels.group }} rebalances again and again: kohort group why {{ $labels.group }}",
    ),
    Alert(
        "KohortFlappingMember",
        'sum by (group) (increase(kohort_group_rebalances_total{cause="member joined"}[15m])) > 3 and on (group) '
        'sum by (group) (increase(kohort_group_rebalances_total{cause!="member joined"}[15m])) > 3',
        "0m",
        "a member of {{ $labels.group }} comes and goes: kohort group why {{ $labels.group }}",
    ),
    Alert(
        "KohortStuckMember",
        "max by (group, member, client_id) (kohort_member_stuck) == 1",
        "30s",
        "{{ $labels.client_id }} of {{ $labels.group }} does not give up what others wait for",
    ),
    Alert(
        "KohortLagGrowsWithMembersIdle",
        "max by (group) (deriv(kohort_group_lag_seconds[5m])) > 0.5 and on (group) "
        "min by (group) (kohort_member_last_commit_seconds) > 60",
        "5m",
        "the lag of {{ $labels.group }} grows, and no member has committed for a minute",
    ),
    Alert(
        "KohortDiskRefuses",
        "kohort_broker_disk_refuses == 1",
        "0m",
        "the disk of {{ $labels.instance }} takes no writes",
    ),
    Alert(
        "KohortPartitionUnread",
        "increase(kohort_partition_unread_seconds_count[10m]) > ignoring (le) "
        'increase(kohort_partition_unread_seconds_bucket{le="30.0"}[10m])',
        "0m",
        "a partition that moved was read by no member for more than 30 s",
    ),
)


def dashboard() -> dict[str, Any]:
    """Build the dashboard, to be imported into Grafana.

    >>> dashboard()["title"]
    'kohort: groups and rebalances'
    """
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "title": "kohort: groups and rebalances",
        "uid": "kohort-groups",
        "schemaVersion": 39,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                {
                    "name": "group",
                    "type": "query",
                    "datasource": source,
                    "query": "label_values(kafka_consumergroup_members, consumergroup)",
                    "includeAll": True,
                    "allValue": ".*",
                    "multi": True,
                    "refresh": 2,
                },
            ]
        },
        "panels": [
            {
                "id": number + 1,
                "type": "timeseries",
                "title": panel.title,
                "datasource": source,
                "gridPos": {"x": number % 3 * 8, "y": number // 3 * 8, "w": 8, "h": 8},
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "targets": [
                    {"refId": chr(ord("A") + at), "datasource": source, "expr": expression, "legendFormat": legend}
                    for at, (expression, legend) in enumerate(panel.expressions)
                ],
            }
            for number, panel in enumerate(PANELS)
        ],
    }


def alert_rules() -> dict[str, Any]:
    """Build the alert rules, a rule file of Prometheus.

    >>> [len(group["rules"]) for group in alert_rules()["groups"]]
    [6]
    """
    rules = [
        {
            "alert": each.name,
            "expr": each.expression,
            "for": each.lasting,
            "labels": {"severity": "warning"},
            "annotations": {"summary": each.sentence},
        }
        for each in ALERTS
    ]
    return {"groups": [{"name": "kohort", "rules": rules}]}
