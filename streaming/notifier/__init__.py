"""``trimtab notify``: decisions, proposals, holds, findings and failures to the webhooks of people, from the topics."""
