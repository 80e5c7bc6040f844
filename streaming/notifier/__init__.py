"""``trimtab notify``: sends decisions, proposals, holds, findings and failures from the topics to people's webhooks."""
