"""Offline agents: learning from data alone."""
